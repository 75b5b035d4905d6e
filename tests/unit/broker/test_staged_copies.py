"""In every order of events, an electable broker holds what was staged, or joined later."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.domain.effects import Effect, IsrProposal, WriteIsr
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.staged_copies import (
    must_hold,
    require_current,
    require_follower,
    to_ask,
)
from leadline_client.errors import (
    FencedLeaderEpoch,
    LeadlineError,
    NotLeader,
    UnknownLeaderEpoch,
)
from tests.unit.broker.replicas import AR, ME, Follower, leader, replica, row


def follower(epoch: int = 5) -> Replica:
    made, _ = replica()
    made.on_leader_and_isr(row(2, epoch), 0)
    return made


def test_all_in_sync_replicas_hold_what_is_staged() -> None:
    assert must_hold(leader()[0]) == (2, 3)
    assert must_hold(leader(isr=(1, 3))[0]) == (3,)
    assert must_hold(leader(isr=(1,), replicas=(1,))[0]) == ()
    with pytest.raises(NotLeader):
        must_hold(follower())


def test_one_that_is_about_to_join_counts_already() -> None:
    made, _ = leader(isr=(1, 2))
    Follower(made, 3).fetch(0)
    assert made.leading().pending is not None
    assert must_hold(made) == (2, 3)


def test_in_sync_replicas_are_asked_first_and_never_oneself() -> None:
    assert to_ask(leader(isr=(1, 3))[0].state) == (3, 2)
    assert to_ask(leader(isr=(1,), replicas=(1,))[0].state) == ()


def test_copies_are_for_the_leader_that_is_followed() -> None:
    require_follower(follower(), 2, 5)
    for known, speaks, epoch, error in (
        (follower(), 2, 4, FencedLeaderEpoch),
        (follower(), 2, 6, UnknownLeaderEpoch),
        (follower(), 3, 5, UnknownLeaderEpoch),
        (replica()[0], 2, 5, UnknownLeaderEpoch),
        (leader()[0], ME, 5, UnknownLeaderEpoch),
    ):
        with pytest.raises(error):
            require_follower(known, speaks, epoch)


def test_one_that_is_elected_already_may_read_and_drop() -> None:
    state = follower().state
    require_current(state, 2, 5)
    require_current(state, 3, 6)
    with pytest.raises(FencedLeaderEpoch):
        require_current(state, 2, 4)
    with pytest.raises(UnknownLeaderEpoch):
        require_current(state, 3, 5)


@dataclass
class Piece:
    """A staged upload: its leader, its holders, and the epoch in which staging succeeded."""

    leader: int
    held: set[int]
    epoch: int | None = None
    joined: set[int] = field(default_factory=set)
    """Who has joined the ISR since it was answered, or in a later epoch."""


class World:
    """Three replicas, what is published of them, and writes and copies under way.

    Brokers learn of published states late or never.
    """

    def __init__(self) -> None:
        self.replicas = {number: replica(me=number)[0] for number in AR}
        self.published = row(1, 0, (1, 2))
        self.proposals: list[tuple[int, IsrProposal]] = []
        self.answers: list[tuple[int, IsrProposal, IsrWriteResult, int]] = []
        self.pieces: list[Piece] = []
        self.joins: list[tuple[int, int]] = []
        self.nonce = 0
        for number in AR:
            self.grant(number, 0)

    def grant(self, broker: int, _: int) -> None:
        """Tell a broker what is published."""
        self.replicas[broker].on_leader_and_isr(self.published, 0)

    def stage(self, broker: int, _: int) -> None:
        """Start staging at a broker that regards itself as the leader."""
        if self.replicas[broker].role is Role.LEADER:
            self.pieces.append(Piece(broker, {broker}))

    def copy(self, broker: int, which: int) -> None:
        """Bring a piece to a replica."""
        if not self.pieces:
            return
        piece = self.pieces[which % len(self.pieces)]
        try:
            epoch = self.replicas[piece.leader].state.leader_epoch
            require_follower(self.replicas[broker], piece.leader, epoch)
        except LeadlineError:
            return
        piece.held.add(broker)

    def answer(self, _: int, which: int) -> None:
        """Answer a piece, if it is where it has to be."""
        if not self.pieces:
            return
        piece = self.pieces[which % len(self.pieces)]
        staging = self.replicas[piece.leader]
        if staging.role is not Role.LEADER or piece.epoch is not None:
            return
        if {*must_hold(staging)} <= piece.held:
            piece.epoch = staging.state.leader_epoch
            piece.joined = {broker for broker, epoch in self.joins if epoch > piece.epoch}

    def fetch(self, broker: int, _: int) -> None:
        """Send a fetch of a follower to the leader of its epoch, which may let it join."""
        known = self.replicas[broker].state
        leading = self.replicas[self.published.leader]
        if leading.role is Role.LEADER and broker != self.published.leader:
            self.nonce += 1
            asking = Follower(leading, broker)
            asking.nonce = self.nonce
            self.take(self.published.leader, asking.fetch(0, epoch=known.leader_epoch)[1])

    def take(self, broker: int, effects: list[Effect]) -> None:
        self.proposals += [(broker, one.proposal) for one in effects if isinstance(one, WriteIsr)]

    def write(self, _: int, which: int) -> None:
        """Write a proposed ISR, unless something else was written before."""
        if not self.proposals:
            return
        broker, proposal = self.proposals.pop(which % len(self.proposals))
        now = self.published
        known = (proposal.leader_epoch, proposal.state_version)
        fits = known == (now.leader_epoch, now.state_version)
        version = now.state_version + 1
        if fits:
            for joiner in {*proposal.isr} - {*now.isr}:
                self.joins.append((joiner, now.leader_epoch))
                for piece in self.pieces:
                    if piece.epoch is not None:
                        piece.joined.add(joiner)
            self.published = row(now.leader, now.leader_epoch, proposal.isr, version=version)
        result = IsrWriteResult.COMMITTED if fits else IsrWriteResult.CONFLICT
        self.answers.append((broker, proposal, result, version))

    def learn(self, _: int, which: int) -> None:
        """Tell a leader what became of its write."""
        if self.answers:
            broker, proposal, result, version = self.answers.pop(which % len(self.answers))
            made = self.replicas[broker]
            if made.leadership is not None and made.state.leader_epoch == proposal.leader_epoch:
                self.take(broker, made.on_isr_written(proposal.number, result, version))

    def elect(self, broker: int, which: int) -> None:
        """Elect a member of the ISR, and put another out if `which` says so: it died."""
        now = self.published
        if broker in now.isr:
            isr = tuple(one for one in now.isr if one == broker or one != 1 + which % 4)
            version = now.state_version + 1
            self.published = row(broker, now.leader_epoch + 1, isr, version=version)

    def check(self) -> None:
        for piece in self.pieces:
            if piece.epoch is not None:
                assert {*self.published.isr} <= piece.held | piece.joined


STEPS = ("grant", "stage", "copy", "answer", "fetch", "write", "learn", "elect")


@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(AR), st.integers(0, 5)),
        min_size=60,
        max_size=150,
    )
)
def test_whoever_can_be_elected_holds_what_was_staged(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for step, broker, which in steps:
        getattr(world, step)(broker, which)
        world.check()
