"""Leader election in ZooKeeper, for the controller and for the coordinator.

Sources: "Leader election in ZooKeeper", election of the Kafka controller; Replication V3,
section D; Consumer Coordinator design, sections A and B (`coordinatorElector`,
`handleNewSession`). Rules R7, R8, R10, R11 and R16.

A candidate uses one ZooKeeper session for each attempt. It wins with one multi that
creates the ephemeral leader node and raises the epoch node at the version that it read.
So one of two candidates wins, and from then on every write that checks the version of an
earlier term fails. A candidate that loses leadership closes its session, so that the next
term inherits nothing from the last one.

A leader node left by an earlier process is another session's, and expires with it.

A candidate that speaks no protocol version in common with a registered service takes no part: its
election ends with `IncompatibleRelease`, and the process with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

import structlog

from leadline_common.cluster_id import OlderCopy, UnfinishedRestore
from leadline_common.versions import IncompatibleRelease, SpokenVersions
from leadline_common.zk.client import Callback
from leadline_common.zk.errors import (
    ConnectionLoss,
    ZkError,
)
from leadline_common.zk.ops import Op

logger = structlog.get_logger(__name__)

RETRY_S: Final = 0.2
"""The pause between two sessions, and between two attempts to close one."""
POLL_S: Final = 2.0
"""How often the leader node is read even if no watch fires (rule R8), and how often a candidate
tries again to use a ZooKeeper that only an operator can make usable."""
RESIGNED_S: Final = 2.0
"""How long a process that has resigned leaves the election to others. If nobody else is there, it
leads again."""
CLOSE_ATTEMPTS: Final = 3


class TermEnded(Exception):
    """Another process leads now, or may lead (rules R10, R11, R16), or this one resigns."""


class Resigned(TermEnded):
    """This process could lead on, but another one may do better."""


@dataclass(frozen=True, slots=True)
class LeadershipTerm:
    """A leader's epoch, and the version of the epoch node that each of its writes checks.

    `began_ms` is when the epoch was written, by ZooKeeper's clock (Unix ms).
    """

    epoch: int
    epoch_version: int
    began_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Leader:
    """The process that leads. `id` is -1 and `url` empty if the leader node is unreadable."""

    id: int
    url: str
    epoch: int
    session_id: int
    internal_url: str = ""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The leader, None if there is none, and the latest term: one snapshot of both nodes."""

    leader: Leader | None
    term: LeadershipTerm


@dataclass(frozen=True, slots=True)
class Claim:
    """What a candidate writes on winning: the leader node's value (its id and URLs), and `ops`."""

    id: int
    url: str
    value: bytes
    ops: tuple[Op, ...] = ()
    internal_url: str = ""


class ElectionSession(Protocol):
    """One ZooKeeper session of a candidate. Every coroutine may raise `ZkError`."""

    @property
    def session_id(self) -> int:
        """The id of the session."""

    @property
    def lost(self) -> asyncio.Event:
        """Set once the session is over."""

    def is_connected(self) -> bool:
        """Tell whether the session is connected to a server."""

    def lease_valid(self) -> bool:
        """Tell whether this process may still act as the leader (rule R10)."""

    def on_reconnected(self, callback: Callback) -> None:
        """Add a callback for after each reconnection, which may have lost watches."""

    async def close(self) -> None:
        """End the session, which deletes the leader node if this session created it."""

    async def require_compatible(self, own: SpokenVersions) -> None:
        """Check the versions of all registered services; raise IncompatibleRelease."""

    async def read_election(self, watch: Callback | None = None) -> ElectionState:
        """Read leader and term; call `watch` once when the leader node changes."""

    async def claim(self, term: LeadershipTerm, claim: Claim) -> LeadershipTerm | None:
        """Become the leader after `term`; return the new term, or None if another won."""


SessionT = TypeVar("SessionT", bound=ElectionSession)


class Candidate(Protocol[SessionT]):
    """What a service brings to the election."""

    @property
    def versions(self) -> SpokenVersions:
        """The protocol versions that it speaks."""

    async def open_session(self) -> SessionT:
        """Open a session.

        Raises:
            ZkError: ZooKeeper is not available.

        """

    def prepared(self, session: SessionT) -> AbstractAsyncContextManager[None]:
        """Create the nodes that must exist, and run what runs on leader and standby alike.

        The context lasts as long as the session is used.
        """

    def claim(self) -> Claim:
        """Return what to write on winning now."""

    async def serve(self, session: SessionT, term: LeadershipTerm) -> None:
        """Lead until the term ends.

        Raises:
            TermEnded: the term has ended.
            ZkError: ZooKeeper was lost.

        """


class LeaderElection(Generic[SessionT]):
    """One candidate's part in the election: its session and the known leader, if any.

    `problem` is why it took no part the last time, until it does again.
    """

    def __init__(self, candidate: Candidate[SessionT]) -> None:
        self.session: SessionT | None = None
        self.leader: Leader | None = None
        self.problem = ""
        self._pause_s = RETRY_S
        self._candidate = candidate
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Take part in elections until cancelled, then close the session.

        Raises:
            IncompatibleRelease: this process may not lead beside a service that is registered.

        """
        while True:
            self._pause_s = RETRY_S
            with self._logged("could not open a ZooKeeper session"):
                # Without a variable that would keep the session, and its term, until the next one.
                await self._handle_new_session(await self._candidate.open_session())
            await asyncio.sleep(self._pause_s)

    async def _handle_new_session(self, session: SessionT) -> None:
        """Take part with one session until it is over."""
        try:
            with self._logged("leaving the election"):
                self.session = session
                session.on_reconnected(self._woken.set)
                await session.require_compatible(self._candidate.versions)
                async with self._candidate.prepared(session):
                    await self._elect(session)
        finally:
            self.session = self.leader = None
            await _close(session)

    async def _elect(self, session: SessionT) -> None:
        """Win and lead one term.

        Raises:
            TermEnded: the term, or the session before it, has ended.
            ZkError: ZooKeeper was lost.

        """
        while not session.lost.is_set():
            self._woken.clear()
            try:
                term = await self._contend(session)
            except ConnectionLoss as problem:
                # A claim whose answer was lost may have won: the next read shows it (rule R7).
                logger.info("lost the connection to ZooKeeper", reason=str(problem))
                self.leader = term = None
                await self._wait(session)
            if term is not None:
                return await self._candidate.serve(session, term)
        raise TermEnded("the ZooKeeper session is over")

    async def _contend(self, session: SessionT) -> LeadershipTerm | None:
        """Read who leads; claim leadership if nobody does, or wait. Return the term if won."""
        state = await session.read_election(self._woken.set)
        self.problem = ""
        if state.leader is not None and state.leader.session_id != session.session_id:
            self.leader = state.leader
            await self._wait(session)
            return None
        claim = self._candidate.claim()
        if state.leader is None:
            await session.require_compatible(self._candidate.versions)
            term = await session.claim(state.term, claim)
        else:
            term = state.term
        if term is not None:
            # A service that registered since the last look may not have seen this claim. Whichever
            # of two writes is the later, a read after it shows the earlier.
            await session.require_compatible(self._candidate.versions)
            logger.info("elected", epoch=term.epoch)
            self.leader = Leader(
                claim.id, claim.url, term.epoch, session.session_id, claim.internal_url
            )
        return term

    @contextmanager
    def _logged(self, event: str) -> Iterator[None]:
        """Log an error of the body instead of raising it, so that the election goes on.

        Only an unexpected error is logged with its traceback. An IncompatibleRelease is raised.
        """
        try:
            yield
        except IncompatibleRelease:
            raise
        except (TermEnded, ZkError) as problem:
            self.problem = str(problem) or type(problem).__name__
            if isinstance(problem, OlderCopy | UnfinishedRestore):
                self._pause_s = POLL_S
            elif isinstance(problem, Resigned):
                self._pause_s = RESIGNED_S
            logger.warning(event, reason=self.problem)
        except Exception as problem:
            self.problem = type(problem).__name__
            logger.exception(event)

    async def _wait(self, session: SessionT) -> None:
        """Wait until the election may have changed, or the session is over."""
        waits = [
            asyncio.create_task(self._woken.wait()),
            asyncio.create_task(session.lost.wait()),
        ]
        try:
            await asyncio.wait(waits, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def require_leadership(
    session: ElectionSession, term: LeadershipTerm, watch: Callback
) -> None:
    """Check that a session still holds the leader node of its term; watch it as `read_election`.

    An operator may have deleted the node, or restored others. Writes are fenced anyway (rule R11);
    this protects what is only served, and lets somebody lead again.

    Raises:
        TermEnded: it does not.

    """
    election = await session.read_election(watch)
    leader = election.leader
    if leader is None or leader.session_id != session.session_id:
        raise TermEnded("the leader node is not held by this session any more")
    if election.term.epoch_version != term.epoch_version:
        raise TermEnded("the epoch was changed in this term")


async def watch_leadership(session: ElectionSession, term: LeadershipTerm) -> None:
    """Check leadership whenever the leader node may have changed, and at intervals.

    Raises:
        TermEnded: this session does not lead any more, or is over.

    """
    woken = asyncio.Event()
    session.on_reconnected(woken.set)  # The connection that broke may have lost the watch.
    while True:
        woken.clear()
        try:
            await require_leadership(session, term, woken.set)
        except ConnectionLoss:
            pass  # The next check comes with the next connection.
        except ZkError as end:
            raise TermEnded(f"ZooKeeper was lost: {end}") from end
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await woken.wait()


async def _close(session: ElectionSession) -> None:
    """Close a session, even if this task is cancelled meanwhile or closing fails at first.

    A session left open would keep its leader node, so that no other candidate could lead.
    A cancellation takes effect once the session is closed.
    """
    closing = asyncio.create_task(_close_with_retries(session), name="election-close")
    cancelled: asyncio.CancelledError | None = None
    while not closing.done():
        try:
            await asyncio.wait([closing])  # does not pass a cancellation on
        except asyncio.CancelledError as request:
            cancelled = request
    if cancelled is not None:
        raise cancelled


async def _close_with_retries(session: ElectionSession) -> None:
    for attempt in range(1, CLOSE_ATTEMPTS + 1):
        try:
            await session.close()
        except Exception:
            logger.exception("could not close the ZooKeeper session", attempt=attempt)
            await asyncio.sleep(RETRY_S)
        else:
            return
