"""Reassignment in the protocol: changed assignments, moving replicas, who may still join (R13)."""

from __future__ import annotations

import pytest

from leadline_broker.domain.effects import WriteIsr
from leadline_broker.domain.isr import UNKNOWN_END
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.state import PublishedState
from leadline_client.errors import FencedLeaderEpoch, InvalidRequest
from leadline_common.rpc import NO_ERROR, FetchedRow, PartitionRow
from tests.unit.broker.replicas import (
    Follower,
    leader,
    leadership,
    proposals,
    reads,
    replica,
    the_proposal,
)

EXPANDED = (4, 1, 2, 3)


def changed(
    replicas: tuple[int, ...] = EXPANDED,
    adding: tuple[int, ...] = (4,),
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    epoch: int = 5,
    version: int = 0,
) -> PartitionRow:
    return PartitionRow(0, 1, epoch, isr, replicas, version, (), adding)


def expanded(epochs: tuple[int, ...] = ()) -> tuple[Replica, Follower]:
    """Return leader 1 of (1, 2, 3), to which 4 is being added in the same epoch."""
    made, _ = leader(epochs)
    assert made.on_leader_and_isr(changed(), 0, (1, 1)) == (NO_ERROR, [])
    return made, Follower(made, 4)


def test_a_replica_added_within_the_epoch_is_served_and_joins() -> None:
    made, new = expanded((5, 5))
    assert leadership(made).progress[4].end == UNKNOWN_END

    _, effects = new.fetch(0)
    assert proposals(effects) == []
    _, effects = new.fetch(2, 5)

    proposal = the_proposal(effects)
    assert proposal.isr == (4, 1, 2, 3)
    assert proposal.joiners == ((4, 0),)


def test_what_followers_stated_before_counts_on_after_the_change() -> None:
    made, log = leader((5,))
    Follower(made, 2).fetch(1, 5)

    made.on_leader_and_isr(changed(), 0, (1, 1))
    Follower(made, 3).fetch(1, 5)

    assert (made.state.high_watermark, log.log_end_offset) == (1, 1)


def test_a_row_that_was_overtaken_changes_no_assignment() -> None:
    made, _ = expanded()
    made.on_leader_and_isr(changed((1, 2, 3), ()), 0, (1, 3))

    code, effects = made.on_leader_and_isr(changed(), 0, (1, 2))

    assert (code, effects) == (NO_ERROR, [])
    assert 4 not in made.state.assigned
    made.on_leader_and_isr(changed(), 0, (2, 0))
    assert 4 in made.state.assigned


def test_a_removed_replica_is_refused_and_never_proposed() -> None:
    made, new = expanded((5,))
    new.fetch(0)
    made.on_leader_and_isr(changed((1, 2, 3), ()), 0, (1, 2))

    answer, effects = new.fetch(1, 5)

    assert (answer.error_code, effects) == (InvalidRequest.code, [])
    assert proposals(made.maybe_change_isr(0)) == []


def test_a_joiner_that_was_removed_is_given_up_when_its_write_conflicts() -> None:
    made, new = expanded((5,))
    proposal = the_proposal(new.fetch(1, 5)[1])
    made.on_leader_and_isr(changed((1, 2, 3), ()), 0, (1, 2))

    for follower in (2, 3):
        Follower(made, follower).fetch(1, 5)
    assert made.state.high_watermark == 0, "it may have been let in"

    assert reads(made.on_isr_written(proposal.number, IsrWriteResult.CONFLICT)) == 1
    effects = made.on_state_read(PublishedState(1, 5, (1, 2, 3), (), 0))

    assert not any(isinstance(effect, WriteIsr) for effect in effects)
    assert leadership(made).pending is None
    assert made.state.high_watermark == 1


def test_a_refused_joiner_may_have_been_removed_meanwhile() -> None:
    made, new = expanded((5,))
    proposal = the_proposal(new.fetch(1, 5)[1])
    made.on_leader_and_isr(changed((1, 2, 3), ()), 0, (1, 2))

    made.on_isr_written(proposal.number, IsrWriteResult.JOINER_REFUSED)

    assert leadership(made).pending is None
    assert 4 not in leadership(made).progress


def test_the_high_watermark_waits_for_an_isr_member_that_is_assigned_no_more() -> None:
    """Until an ISR without it is published, the controller may still elect it."""
    made, _ = leader((5,), isr=(1, 2, 3))
    made.on_leader_and_isr(changed((1, 2), ()), 0, (1, 1))

    Follower(made, 2).fetch(1, 5)
    assert made.state.high_watermark == 0

    made.on_leader_and_isr(changed((1, 2), (), isr=(1, 2), version=1), 0, (1, 2))
    assert made.state.high_watermark == 1


@pytest.mark.parametrize(
    ("replicas", "adding", "floor"),
    [((1,), (), 1), ((2, 1), (2,), 1), ((2, 3, 1), (2, 3), 1), ((4, 5, 1, 2), (4, 5), 2)],
)
def test_added_replicas_do_not_raise_the_isr_floor(
    replicas: tuple[int, ...], adding: tuple[int, ...], floor: int
) -> None:
    made, _ = replica()
    made.on_leader_and_isr(changed(replicas, adding, isr=(1,)), 0)

    assert made.state.isr_floor == floor


def test_which_replicas_move_is_known_until_they_are_in_sync() -> None:
    made, _ = expanded()
    assert [broker for broker in EXPANDED if made.state.moves(broker)] == [4]

    made.on_leader_and_isr(changed(isr=EXPANDED, version=1), 0, (1, 2))

    assert not made.state.moves(4)


def follower_4(adding: tuple[int, ...] = (4,), isr: tuple[int, ...] = (1, 2, 3)) -> Replica:
    made, _ = replica((), me=4)
    made.on_leader_and_isr(changed(adding=adding, isr=isr), 0)
    return made


def test_an_added_replica_catches_up_until_it_has_what_is_committed() -> None:
    made = follower_4()
    assert made.catching_up

    made.on_fetched(1)
    assert made.catching_up

    made.on_fetch_answer(FetchedRow(0, 5, 0, -1, NO_ERROR, 0, 0))
    assert not made.catching_up
    made.on_fetched(1)
    assert not made.catching_up, "the fetcher of in-sync replicas has it now"


@pytest.mark.parametrize(("adding", "isr"), [((), (1, 2, 3)), ((4,), (1, 4))])
def test_other_replicas_do_not_catch_up(adding: tuple[int, ...], isr: tuple[int, ...]) -> None:
    assert not follower_4(adding, isr).catching_up


def test_a_dropped_leader_gives_up_what_it_had_parked() -> None:
    made, _ = leader((5,))
    made.leading().park(1, 7)

    effects = made.step_down()

    assert made.role is Role.FENCED
    assert len(effects) == 1
    assert made.on_leader_and_isr(changed((1, 2, 3), ()), 0)[0] == FencedLeaderEpoch.code
