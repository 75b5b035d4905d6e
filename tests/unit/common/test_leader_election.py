"""Leader election at the moments that a real ZooKeeper cannot be made to hit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from leadline_common import leader_election
from leadline_common.cluster_id import OlderCopy
from leadline_common.leader_election import (
    Claim,
    ElectionState,
    Leader,
    LeaderElection,
    LeadershipTerm,
)
from leadline_common.versions import SpokenVersions, own_versions
from leadline_common.zk.client import Callback
from leadline_common.zk.errors import ConnectionLoss, NotPermitted
from tests.support.services.zookeeper import until

LONG_S = 0.5


class WatchedSession:
    """A session that sees another leader, and lets a test fire the watch."""

    session_id = 1

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.watched = asyncio.Event()
        self.watch: Callback | None = None

    def is_connected(self) -> bool:
        return True

    def lease_valid(self) -> bool:
        return True

    def on_reconnected(self, callback: Callback) -> None:
        del callback

    async def close(self) -> None:
        self.lost.set()

    async def require_compatible(self, own: SpokenVersions) -> None:
        assert own.service == "candidate 1"

    async def read_election(self, watch: Callback | None = None) -> ElectionState:
        self.watch = watch
        self.watched.set()
        return ElectionState(Leader(2, "http://127.0.0.1:2", 1, 2), LeadershipTerm(1, 1))

    async def claim(self, term: LeadershipTerm, claim: Claim) -> LeadershipTerm | None:
        del term, claim
        raise AssertionError("another process leads")


class Standby:
    """A candidate that never wins."""

    versions = own_versions("candidate 1")

    def __init__(self) -> None:
        self.session = WatchedSession()

    async def open_session(self) -> WatchedSession:
        return self.session

    @asynccontextmanager
    async def prepared(self, session: WatchedSession) -> AsyncIterator[None]:
        del session
        yield

    def claim(self) -> Claim:
        return Claim(1, "", b"")

    async def serve(self, session: WatchedSession, term: LeadershipTerm) -> None:
        del session, term
        raise AssertionError("another process leads")


@pytest.mark.parametrize("steps", range(8))
async def test_a_candidate_that_wakes_up_can_still_be_cancelled(steps: int) -> None:
    """A cancellation as the watch fired was once swallowed, and the process ran on for ever."""
    standby = Standby()
    election = asyncio.create_task(LeaderElection(standby).run())
    await standby.session.watched.wait()
    await asyncio.sleep(0)
    assert standby.session.watch is not None
    standby.session.watch()
    for _ in range(steps):
        await asyncio.sleep(0)

    election.cancel()
    await asyncio.wait([election], timeout=5)

    assert election.cancelled()
    assert standby.session.lost.is_set(), "the session is closed"


class Refused(Standby):
    """A candidate that an ACL keeps from taking part, until somebody repairs it."""

    def __init__(self) -> None:
        super().__init__()
        self.repaired = False

    @asynccontextmanager
    async def prepared(self, session: WatchedSession) -> AsyncIterator[None]:
        if not self.repaired:
            self.repaired = True
            raise NotPermitted("/controller")
        async with super().prepared(session):
            yield


async def test_a_candidate_says_why_it_takes_no_part_until_it_does() -> None:
    refused = Refused()
    election = LeaderElection(refused)
    running = asyncio.create_task(election.run())
    try:
        await until(lambda: bool(election.problem), "it was refused")
        assert election.problem == str(NotPermitted("/controller"))
        refused.session = WatchedSession()
        await until(lambda: election.leader is not None, "it takes part")
        assert election.problem == ""
    finally:
        running.cancel()
        await asyncio.wait([running])


class Outdated(Refused):
    """A candidate that finds an older copy of ZooKeeper's data, until an operator restores them."""

    @asynccontextmanager
    async def prepared(self, session: WatchedSession) -> AsyncIterator[None]:
        if not self.repaired:
            self.repaired = True
            raise OlderCopy("an older copy")
        async with super().prepared(session):
            yield


async def test_only_the_session_that_needs_an_operator_is_followed_by_a_long_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once repaired, each later session began two seconds after the one before."""
    monkeypatch.setattr(leader_election, "POLL_S", LONG_S)
    outdated = Outdated()
    election = LeaderElection(outdated)
    running = asyncio.create_task(election.run())
    try:
        await until(lambda: bool(election.problem), "the copy was refused")
        assert election._pause_s == LONG_S
        outdated.session = WatchedSession()
        await until(lambda: election.leader is not None, "it takes part")
        assert election._pause_s == leader_election.RETRY_S
    finally:
        running.cancel()
        await asyncio.wait([running])


class SessionWithLostAnswer(WatchedSession):
    """A session whose claim wins, but whose answer is lost with the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ElectionState(None, LeadershipTerm(1, 1))

    async def read_election(self, watch: Callback | None = None) -> ElectionState:
        self.watch = watch
        return self.state

    async def claim(self, term: LeadershipTerm, claim: Claim) -> LeadershipTerm | None:
        won = LeadershipTerm(term.epoch + 1, term.epoch_version + 1)
        self.state = ElectionState(Leader(claim.id, "", won.epoch, self.session_id), won)
        if self.watch is not None:
            self.watch()
        raise ConnectionLoss


class Winner(Standby):
    """A candidate that notes the term in which it leads."""

    def __init__(self) -> None:
        super().__init__()
        self.session = SessionWithLostAnswer()
        self.term: asyncio.Future[LeadershipTerm] = asyncio.get_running_loop().create_future()

    async def serve(self, session: WatchedSession, term: LeadershipTerm) -> None:
        self.term.set_result(term)
        await session.lost.wait()


async def test_a_claim_whose_answer_was_lost_is_found_won_by_reading() -> None:
    """Rule R7: otherwise nobody would lead until this session ends."""
    winner = Winner()
    election = asyncio.create_task(LeaderElection(winner).run())
    try:
        assert await asyncio.wait_for(winner.term, 10) == LeadershipTerm(2, 2)
    finally:
        election.cancel()
        await asyncio.wait([election], timeout=5)
