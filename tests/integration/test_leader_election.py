"""Leader election against a real ZooKeeper: who leads, and what a lost session or answer does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest

from leadline_common.election_store import ElectionNodes, ElectionStore
from leadline_common.leader_election import (
    CLOSE_ATTEMPTS,
    Claim,
    Leader,
    LeaderElection,
    LeadershipTerm,
    Resigned,
    TermEnded,
)
from leadline_common.versions import IncompatibleRelease, own_versions
from leadline_common.zk.errors import BadVersion, MultiFailed
from leadline_common.zk.ops import ANY_VERSION, CheckOp, CreateOp
from leadline_common.zk.session import ZkSession
from tests.support.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.faults.zk_proxy import CrashPoints
from tests.support.services.zookeeper import (
    SESSION_TIMEOUT_MS,
    expire,
    register_newer_broker,
    until,
)

LEADER = "/leader"
EPOCH = "/leader_epoch"
DEADLINE_S = 20.0


def identity(data: bytes) -> tuple[int, str, str]:
    number, url = data.decode().split(" ")
    return int(number), url, ""


class ScriptedStore(ElectionStore):
    """A session on which a test may interfere: each hook runs once, before or after its call."""

    def __init__(self) -> None:
        super().__init__(ElectionNodes(LEADER, EPOCH, identity))
        self.before_claim: Callable[[], Awaitable[None]] | None = None
        self.after_claim: Callable[[], Awaitable[None]] | None = None
        self.before_close: list[Callable[[], Awaitable[None]]] = []
        self.is_closed = False

    @property
    def zk(self) -> ZkSession:
        return self._session

    async def claim(self, term: LeadershipTerm, claim: Claim) -> LeadershipTerm | None:
        if self.before_claim is not None:
            await self.before_claim()
        won = await super().claim(term, claim)
        if self.after_claim is not None:
            await self.after_claim()
        return won

    async def close(self) -> None:
        if self.before_close:
            await self.before_close.pop(0)()
        await super().close()
        self.is_closed = True


class ExampleService:
    """A candidate that leads until its session is lost; it records sessions and terms."""

    def __init__(self, number: int, hosts: str) -> None:
        self.number = number
        self.url = f"http://127.0.0.1:{number}"
        self.versions = own_versions(f"candidate {number}")
        self.sessions: list[ScriptedStore] = []
        self.terms: list[LeadershipTerm] = []
        self.is_leading = False
        self.resigning = asyncio.Event()
        self.opening_fails = 0
        self.on_open: Callable[[ScriptedStore], None] = lambda _: None
        self.election = LeaderElection(self)
        self.task: asyncio.Task[None] | None = None
        self._hosts = hosts

    @property
    def epochs(self) -> list[int]:
        return [term.epoch for term in self.terms]

    async def open_session(self) -> ScriptedStore:
        if self.opening_fails:
            self.opening_fails -= 1
            raise ValueError("a host name that cannot be parsed")
        store = ScriptedStore()
        await store.start(self._hosts, SESSION_TIMEOUT_MS)
        self.sessions.append(store)
        self.on_open(store)
        return store

    @asynccontextmanager
    async def prepared(self, session: ScriptedStore) -> AsyncIterator[None]:
        await session.create_epoch_node()
        yield

    def claim(self) -> Claim:
        value = f"{self.number} {self.url}".encode()
        return Claim(self.number, self.url, value, (CreateOp("/elected-", sequence=True),))

    async def serve(self, session: ScriptedStore, term: LeadershipTerm) -> None:
        self.terms.append(term)
        self.is_leading = True
        ends = [asyncio.create_task(one.wait()) for one in (session.lost, self.resigning)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self.resigning.is_set():
                self.resigning.clear()
                raise Resigned("another one may do better")
            raise TermEnded("the session was lost")
        finally:
            self.is_leading = False
            for end in ends:
                end.cancel()

    def start(self) -> None:
        self.task = asyncio.create_task(self.election.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def leads(self) -> None:
        await until(lambda: self.is_leading, f"candidate {self.number} leads")

    async def follows(self, other: ExampleService) -> None:
        await until(
            lambda: self.election.leader is not None and self.election.leader.id == other.number,
            f"candidate {self.number} knows that {other.number} leads",
        )


class Candidates:
    """Starts candidates and stops them at the end of a test."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._made: list[ExampleService] = []

    def add(self, hosts: str | None = None) -> ExampleService:
        """Return another candidate, not started yet."""
        self._made.append(ExampleService(len(self._made) + 1, hosts or self._hosts))
        return self._made[-1]

    async def leader_and_standby(self) -> tuple[ExampleService, ExampleService]:
        leader, standby = self.add(), self.add()
        leader.start()
        await leader.leads()
        standby.start()
        await standby.follows(leader)
        return leader, standby

    async def stop(self) -> None:
        await asyncio.gather(*(candidate.stop() for candidate in self._made))


@pytest.fixture
async def candidates(zk_chroot: str) -> AsyncIterator[Candidates]:
    made = Candidates(zk_chroot)
    yield made
    await made.stop()


async def epoch(session: ZkSession) -> bytes:
    return (await session.get(EPOCH))[0]


# -- election ------------------------------------------------------------------


async def test_one_of_two_candidates_is_elected(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    one, two = candidates.add(), candidates.add()
    one.start()
    two.start()
    await until(lambda: one.is_leading or two.is_leading, "one of them leads")
    leader, standby = (one, two) if one.is_leading else (two, one)
    await standby.follows(leader)
    data, stat = await zk_session.get(LEADER)
    known = Leader(leader.number, leader.url, 1, stat.ephemeral_owner)
    assert identity(data) == (leader.number, leader.url, "")
    assert standby.election.leader == leader.election.leader == known
    assert leader.terms == [LeadershipTerm(1, 1)]
    assert standby.terms == []
    names = await zk_session.get_children("/")
    assert sum(name.startswith("elected-") for name in names) == 1, "written with the claim"


async def test_leadership_passes_on_when_the_leader_stops(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    leader, standby = await candidates.leader_and_standby()
    await leader.stop()
    await standby.leads()
    assert standby.terms == [LeadershipTerm(2, 2)]
    assert await epoch(zk_session) == b"2"
    assert leader.election.leader is None
    assert leader.election.session is None


async def test_a_leader_that_resigns_leaves_the_election_to_others(
    candidates: Candidates,
) -> None:
    leader, standby = await candidates.leader_and_standby()
    leader.resigning.set()
    await standby.leads()
    await leader.follows(standby)
    assert standby.epochs == [2]
    assert leader.epochs == [1]


async def test_a_leader_that_resigns_leads_again_if_nobody_else_is_there(
    candidates: Candidates,
) -> None:
    alone = candidates.add()
    alone.start()
    await alone.leads()
    alone.resigning.set()
    await until(lambda: alone.is_leading and alone.epochs == [1, 2], "it leads again")


async def test_the_epoch_grows_by_one_with_each_term(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    for expected in range(1, 5):
        candidate = candidates.add()
        candidate.start()
        await candidate.leads()
        assert candidate.epochs == [expected]
        await candidate.stop()
    assert await epoch(zk_session) == b"4"


async def test_writes_of_an_earlier_term_fail(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    leader, standby = await candidates.leader_and_standby()
    check = CheckOp(EPOCH, leader.terms[0].epoch_version)
    await zk_session.multi([check])
    await leader.stop()
    await standby.leads()
    with pytest.raises(MultiFailed) as failure:
        await zk_session.multi([check])
    assert isinstance(failure.value.error, BadVersion)


async def test_a_candidate_of_an_incompatible_release_takes_no_part(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    await register_newer_broker(zk_session)
    candidate = candidates.add()
    candidate.start()
    assert candidate.task is not None
    with pytest.raises(IncompatibleRelease, match=r"candidate 1 .*broker 2 \(release 9.0.0\)"):
        await candidate.task
    assert candidate.terms == []
    assert candidate.sessions[0].is_closed
    assert await zk_session.exists(EPOCH) is None, "it has written nothing"


async def test_a_standby_looks_at_the_releases_again_before_it_leads(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    leader, standby = await candidates.leader_and_standby()
    await register_newer_broker(zk_session)
    await leader.stop()
    assert standby.task is not None
    with pytest.raises(IncompatibleRelease):
        await standby.task
    assert await zk_session.exists(LEADER) is None
    assert await epoch(zk_session) == b"1", "it has claimed nothing"


async def test_a_release_that_registers_during_the_claim_is_noticed(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    candidate = candidates.add()

    def interfere(store: ScriptedStore) -> None:
        # It has looked before the claim, and so has not seen this candidate either.
        store.before_claim = partial(register_newer_broker, zk_session)

    candidate.on_open = interfere
    candidate.start()
    assert candidate.task is not None
    with pytest.raises(IncompatibleRelease):
        async with asyncio.timeout(DEADLINE_S):
            await candidate.task
    assert candidate.terms == []
    assert await zk_session.exists(LEADER) is None


async def test_a_candidate_keeps_trying_to_open_a_session(candidates: Candidates) -> None:
    candidate = candidates.add()
    candidate.opening_fails = 2
    candidate.start()
    await candidate.leads()


async def test_damaged_nodes_keep_nobody_from_leading(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    leader, standby = await candidates.leader_and_standby()
    await zk_session.set(EPOCH, b"many", ANY_VERSION)
    await zk_session.set(LEADER, b"nobody", ANY_VERSION)
    await until(
        lambda: standby.election.leader is not None and standby.election.leader.id == -1,
        "the standby sees a leader that it cannot read",
    )
    await leader.stop()
    await standby.leads()
    assert standby.terms == [LeadershipTerm(3, 3)], "the version stands in for the epoch"


# -- session loss in every state -----------------------------------------------


async def test_a_standby_that_loses_its_session_takes_part_again(
    candidates: Candidates, zk_chroot: str
) -> None:
    leader, standby = await candidates.leader_and_standby()
    await expire(standby.sessions[0].zk, zk_chroot)
    await until(lambda: len(standby.sessions) == 2, "the standby opens another session")
    await standby.follows(leader)
    assert standby.sessions[0].is_closed
    await leader.stop()
    await standby.leads()
    assert standby.epochs == [2]


async def test_a_session_lost_before_the_claim_wins_nothing(
    candidates: Candidates, zk_chroot: str
) -> None:
    candidate = candidates.add()

    def interfere(store: ScriptedStore) -> None:
        if len(candidate.sessions) == 1:
            store.before_claim = partial(expire, store.zk, zk_chroot)

    candidate.on_open = interfere
    candidate.start()
    await candidate.leads()
    assert candidate.epochs == [1]
    assert [store.is_closed for store in candidate.sessions] == [True, False]


async def test_a_session_lost_after_the_claim_ends_the_term_it_won(
    candidates: Candidates, zk_chroot: str, zk_session: ZkSession
) -> None:
    candidate = candidates.add()

    def interfere(store: ScriptedStore) -> None:
        if len(candidate.sessions) == 1:
            store.after_claim = partial(expire, store.zk, zk_chroot)

    candidate.on_open = interfere
    candidate.start()
    await until(lambda: 2 in candidate.epochs and candidate.is_leading, "it leads a second term")
    assert await epoch(zk_session) == b"2"
    _, stat = await zk_session.get(LEADER)
    assert stat.ephemeral_owner == candidate.sessions[1].session_id


async def test_a_leader_that_loses_its_session_becomes_a_standby(
    candidates: Candidates, zk_chroot: str
) -> None:
    leader, standby = await candidates.leader_and_standby()
    await expire(leader.sessions[0].zk, zk_chroot)
    await standby.leads()
    await leader.follows(standby)
    assert not leader.is_leading
    assert (leader.epochs, standby.epochs) == ([1], [2])
    assert leader.sessions[0].is_closed


async def test_a_session_lost_while_closing_ends_all_the_same(
    candidates: Candidates, zk_chroot: str
) -> None:
    leader, standby = await candidates.leader_and_standby()
    store = leader.sessions[0]
    store.before_close.append(partial(expire, store.zk, zk_chroot))
    await leader.stop()
    await standby.leads()
    assert store.is_closed
    assert leader.task is not None
    assert leader.task.cancelled()


# -- closing -------------------------------------------------------------------


class Closing:
    """Lets a test hold up a close, and make it fail."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.released = asyncio.Event()

    async def fail_when_released(self) -> None:
        self.begun.set()
        await self.released.wait()
        raise OSError("the close failed")


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_a_cancellation_while_closing_fails_takes_effect_and_leaks_no_session(
    candidates: Candidates, zk_session: ZkSession, zk_chroot: str, cancellations: int
) -> None:
    candidate, closing = candidates.add(), Closing()
    candidate.start()
    await candidate.leads()
    store = candidate.sessions[0]
    store.before_close.append(closing.fail_when_released)
    store.lost.set()  # the term ends, though the session is still there
    assert candidate.task is not None
    await closing.begun.wait()
    for _ in range(cancellations):
        candidate.task.cancel()
        await asyncio.sleep(0)
    assert not candidate.task.done(), "the session is not closed yet"
    closing.released.set()
    await asyncio.wait([candidate.task], timeout=10)
    assert candidate.task.cancelled()
    assert store.is_closed
    assert await zk_session.exists(LEADER) is None
    assert len(candidate.sessions) == 1


async def test_a_close_that_fails_ends_nobodys_candidacy(
    candidates: Candidates, zk_session: ZkSession
) -> None:
    candidate, closing = candidates.add(), Closing()
    candidate.start()
    await candidate.leads()
    store = candidate.sessions[0]
    closing.released.set()
    store.before_close += [closing.fail_when_released] * CLOSE_ATTEMPTS
    store.lost.set()
    await until(lambda: len(candidate.sessions) == 2, "it opens another session")
    await store.zk.close()
    await candidate.leads()
    assert candidate.epochs == [1, 2]
    assert await epoch(zk_session) == b"2"


# -- a claim whose answer is lost (rule R7) ------------------------------------


@pytest.mark.parametrize("after", [True, False], ids=["after-it-won", "before-it-was-sent"])
async def test_a_claim_without_an_answer_is_adopted_or_repeated(
    candidates: Candidates,
    zookeeper: EmbeddedZooKeeper,
    zk_chroot: str,
    zk_session: ZkSession,
    *,
    after: bool,
) -> None:
    async with AsyncExitStack() as stack:
        proxy = CrashPoints(zookeeper.hosts, [LEADER.encode()], _nothing)
        address = await stack.enter_async_context(proxy.serving())
        proxy.arm(1, after=after)
        candidate = candidates.add(zk_chroot.replace(zookeeper.hosts, address))
        candidate.start()
        await candidate.leads()
        assert proxy.ended.is_set(), "the connection broke at the claim"
        assert candidate.terms == [LeadershipTerm(1, 1)]
        assert len(candidate.sessions) == 1, "the session outlived the connection"
        assert await epoch(zk_session) == b"1"
        _, stat = await zk_session.get(LEADER)
        assert stat.ephemeral_owner == candidate.sessions[0].session_id
        await candidate.stop()


async def _nothing() -> None:
    """End no process: the broken connection is all."""
