"""Following: one fetcher per leader and lane, for all partitions followed from there.

Seed 1 G at the follower, in incremental sessions (the KIP-227 idea): the first
request of a session names every partition, later ones only those whose position
changed. A fetcher has one request under way at a time; its appends are fsynced
together before it asks on, because a position states durable ends (rule R4).
Whatever goes wrong with a request ends the session: the next one is full.

Replicas that a reassignment adds have a lane of their own, down to the disk, until
they have caught up: what is throttled, or simply large, holds up nobody else (KIP-73).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Protocol

import structlog

from leadline_broker.domain.effects import Effect
from leadline_broker.runtime.backoff import Backoff
from leadline_broker.runtime.ports import Peers, ReplicaKey
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.penalties import Penalties
from leadline_broker.runtime.replication.throttle import Throttle
from leadline_client.errors import (
    ConnectionLost,
    FetchSessionUnknown,
    LeadlineError,
    OffsetOutOfRange,
)
from leadline_common.clock import Clock
from leadline_common.rpc import (
    NO_ERROR,
    FetchedRow,
    FetchRow,
    FetchTopic,
    ForgottenTopic,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)

logger = structlog.get_logger(__name__)

NO_SESSION: Final = 0
_ANSWER_MARGIN_MS: Final = 10_000
"""How much longer than its wait an answer may take."""
_DURABLE_POLL_S: Final = 0.005
"""Between looks at a log that cannot be fsynced now, for want of room."""
_FIRST_PAUSE_MS: Final = 20
_LONGEST_PAUSE_MS: Final = 1_000
_MOVING_LANE: Final = -1


class BrokerIdentity(Protocol):
    """What a fetcher needs to know of its own broker and the others."""

    @property
    def broker_id(self) -> int:
        """The number of this broker."""

    @property
    def incarnation(self) -> int:
        """The registration in force."""

    @property
    def leaving(self) -> bool:
        """Whether this broker is about to stop."""

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return URL and lowest possible incarnation of another broker."""


class Flushes(Protocol):
    """The group commit."""

    async def settled(self) -> None:
        """Wait until what is dirty now is durable."""


@dataclass(frozen=True, slots=True)
class ReplicaFetchSettings:
    """How followers fetch; see `replica.fetch.*` and `num.replica.fetchers`."""

    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    lanes: int


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What all fetchers of a broker share.

    `nonces` rise over all fetchers, so that no leader ever sees one twice from the
    same incarnation (rule R3). `receiving` is what may be fetched for moving replicas,
    `moving_flushes` their group commit.
    """

    me: BrokerIdentity
    peers: Peers
    flushes: Flushes
    moving_flushes: Flushes
    execute: Callable[[Partition, Sequence[Effect]], None]
    clock: Clock
    random: Random
    settings: ReplicaFetchSettings
    nonces: Iterator[int]
    receiving: Throttle

    def backoff(self) -> Backoff:
        """Return a new backoff."""
        return Backoff(self.random, first_ms=_FIRST_PAUSE_MS, longest_ms=_LONGEST_PAUSE_MS)


class ReplicaFetcherManager:
    """All fetchers of this broker. Owned by the event loop."""

    def __init__(self, context: FetchContext) -> None:
        self._context = context
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._of: dict[Partition, ReplicaFetcher] = {}

    def start(self, partition: Partition, leader: int) -> None:
        """Fetch the partition from `leader`, from wherever its log ends."""
        self.stop(partition)
        moving = partition.replica.catching_up
        lane = _MOVING_LANE if moving else partition.partition % self._context.settings.lanes
        place = (leader, lane)
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            caught_up = partial(self.start, leader=leader) if moving else None
            fetcher = self._fetchers[place] = ReplicaFetcher(leader, self._context, caught_up)
            task = asyncio.create_task(fetcher.run(), name=f"fetcher-{place[0]}-{place[1]}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._of[partition] = fetcher
        fetcher.add(partition)

    def stop(self, partition: Partition) -> None:
        """Stop fetching the partition, if anybody does."""
        fetcher = self._of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    async def close(self) -> None:
        """End all fetchers."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fetchers.clear()
        self._of.clear()


class ReplicaFetcher:
    """Fetches some partitions from one leader.

    With `on_caught_up` they are moving replicas: what is fetched is throttled, and
    those that have caught up are handed on.
    """

    def __init__(
        self,
        leader: int,
        context: FetchContext,
        on_caught_up: Callable[[Partition], None] | None = None,
    ) -> None:
        self._leader = leader
        self._context = context
        self._on_caught_up = on_caught_up
        self._flushes = context.moving_flushes if on_caught_up else context.flushes
        self._partitions: dict[ReplicaKey, Partition] = {}
        self._changed: dict[ReplicaKey, Partition] = {}
        self._forgotten: dict[ReplicaKey, None] = {}
        self._penalties = Penalties(context.clock, context.backoff)
        self._session = NO_SESSION
        self._backoff = context.backoff()
        self._wake = asyncio.Event()
        self._call: asyncio.Task[ReplicaFetchResponse] | None = None

    def add(self, partition: Partition) -> None:
        """Take a partition on; a request that is parked at the leader is given up for it."""
        self._partitions[partition.key] = self._changed[partition.key] = partition
        self._forgotten.pop(partition.key, None)
        self._penalties.lift(partition.key)
        self._wake.set()
        if self._call is not None:
            self._call.cancel()

    def remove(self, partition: Partition) -> None:
        """Let go of a partition."""
        self._partitions.pop(partition.key, None)
        self._changed.pop(partition.key, None)
        self._penalties.lift(partition.key)
        self._forgotten[partition.key] = None

    async def run(self) -> None:
        """Fetch for ever, whatever happens: nobody else fetches these partitions."""
        while True:
            try:
                await self._exchange()
            except LeadlineError as error:
                await self._failed(error.message)
            except Exception:
                logger.exception("fault in a fetch", leader=self._leader)
                await self._failed("a fault of this broker")

    async def _exchange(self) -> None:
        """Ask once and use the answer, or wait until there is something to ask.

        Raises:
            LeadlineError: there is no answer.

        """
        await self._until_durable()
        if pause_ms := self._must_wait_ms():
            await asyncio.sleep(pause_ms / 1000)
            return
        request = self._next_request()
        if request is None:
            await self._idle()
            return
        answer = await self._ask(request)
        if answer is None:
            self._session = NO_SESSION
            return
        self._session = request.session
        self._backoff.reset()
        self._use(answer)
        await self._flushes.settled()

    async def _until_durable(self) -> None:
        """Wait while a log whose position is to be stated is not fsynced."""
        while True:
            await self._flushes.settled()
            if all(
                partition.log.durable_end_offset == partition.log.log_end_offset
                for partition in self._changed.values()
            ):
                return
            await asyncio.sleep(_DURABLE_POLL_S)

    def _must_wait_ms(self) -> float:
        """Return how long the throttle leaves nothing to fetch for moving replicas."""
        if self._on_caught_up is None or not self._partitions:
            return 0.0
        return self._context.receiving.delay_ms()

    async def _idle(self) -> None:
        """Wait for a partition, or for the end of a penalty."""
        self._wake.clear()
        pause_ms = self._penalties.next_due_ms()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if pause_ms is None else pause_ms / 1000):
                await self._wake.wait()

    def _next_request(self) -> ReplicaFetchRequest | None:
        for key in self._penalties.due():
            if key in self._partitions:
                self._changed[key] = self._partitions[key]
        if not self._partitions:
            self._session = NO_SESSION
            return None
        nonce = next(self._context.nonces)
        rows = self._rows()
        if not rows and self._session == NO_SESSION:
            return None
        forgotten, self._forgotten = self._forgotten, {}
        settings, me = self._context.settings, self._context.me
        due_ms = self._penalties.next_due_ms() or settings.wait_max_ms
        return ReplicaFetchRequest(
            broker_id=me.broker_id,
            incarnation=me.incarnation,
            session=self._session or nonce,
            nonce=nonce,
            wait_ms=settings.wait_max_ms
            if due_ms is None
            else int(min(settings.wait_max_ms, due_ms)),
            min_bytes=settings.min_bytes,
            max_bytes=self._max_bytes(),
            topics=rows,
            forgotten=_forgotten_topics(forgotten),
            leaving=me.leaving,
        )

    def _max_bytes(self) -> int:
        largest = self._context.settings.max_bytes
        if self._on_caught_up is None:
            return largest
        return min(largest, self._context.receiving.available())

    def _rows(self) -> list[FetchTopic]:
        """Return the positions to state: all of them in a new session, else those that changed."""
        if self._session == NO_SESSION:
            self._changed = {
                key: p for key, p in self._partitions.items() if not self._penalties.holds(key)
            }
        rows: dict[str, list[FetchRow]] = {}
        later = {}
        for key, partition in self._changed.items():
            row = partition.replica.fetch_row()
            if row is None:
                later[key] = partition
            else:
                rows.setdefault(partition.topic_id, []).append(row)
        self._changed = later
        return [FetchTopic(topic_id, topic_rows) for topic_id, topic_rows in rows.items()]

    async def _ask(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse | None:
        """Return an answer to this very request, or None if the session is over.

        Raises:
            LeadlineError: there is no such answer.

        """
        address = self._context.me.address_of(self._leader)
        if address is None:
            raise ConnectionLost("its address is not known")
        url, incarnation = address
        call = self._call = asyncio.create_task(
            self._context.peers.fetch(url, request, request.wait_ms + _ANSWER_MARGIN_MS)
        )
        try:
            await asyncio.wait([call])
        finally:
            call.cancel()
            self._call = None
        if call.cancelled():
            return None
        answer = call.result()
        if answer.error_code == FetchSessionUnknown.code and self._session != NO_SESSION:
            return None
        if answer.error_code != NO_ERROR:
            raise ConnectionLost(f"it answered with error {answer.error_code}")
        if answer.nonce != request.nonce or answer.incarnation < incarnation:
            raise ConnectionLost("an answer to another request, or of a broker long gone")
        return answer

    async def _failed(self, reason: str) -> None:
        """Give up the session and pause; whoever waits for what was led here waits no more."""
        self._session = NO_SESSION
        for partition in list(self._partitions.values()):
            if partition.replica.has_parked:
                self._context.execute(partition, partition.replica.give_up())
        pause_ms = self._backoff.next_ms()
        if self._backoff.failures == 1:
            logger.info("fetch failed", leader=self._leader, reason=reason)
        await asyncio.sleep(pause_ms / 1000)

    def _use(self, answer: ReplicaFetchResponse) -> None:
        if self._on_caught_up is not None:
            rows = (row for topic in answer.topics for row in topic.partitions)
            self._context.receiving.take(sum(len(row.records) for row in rows))
        for topic in answer.topics:
            for row in topic.partitions:
                partition = self._partitions.get((topic.topic_id, row.partition))
                if partition is not None:
                    self._take(partition, row)

    def _take(self, partition: Partition, row: FetchedRow) -> None:
        """Let the replica use a row; what it refuses is asked for again, later."""
        try:
            effects = partition.replica.on_fetch_answer(row)
            self._context.execute(partition, effects)
        except LeadlineError as error:
            logger.warning(
                "fetched records refused",
                topic=partition.topic,
                partition=partition.partition,
                leader=self._leader,
                reason=error.message,
            )
            self._penalties.impose(partition.key)
            return
        if row.error_code not in {NO_ERROR, OffsetOutOfRange.code}:
            self._penalties.impose(partition.key)
            return
        self._penalties.lift(partition.key)
        if self._on_caught_up is not None and not partition.replica.catching_up:
            self._on_caught_up(partition)
        elif row.records or row.diverging_end >= 0 or row.error_code != NO_ERROR:
            self._changed[partition.key] = partition


def _forgotten_topics(keys: dict[ReplicaKey, None]) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, []).append(partition)
    return [ForgottenTopic(topic_id, partitions) for topic_id, partitions in topics.items()]
