"""Fetching from leaders: several fetchers per leader, each for some of its partitions.

Replication V3, section G, follower side, with incremental sessions as in KIP-227: the first
request of a session names every partition, later ones only those whose position changed. A
fetcher has one request in flight. It fsyncs what it appended before the next request, because
a position states a durable end (rule R4). Any failure of a request ends the session, so that
the next request names every partition.

Replicas that a reassignment adds have separate fetchers and a flusher until they have caught
up, so that their throttle and their volume delay no other replica (KIP-73). There is one such
fetcher for each task, because each task has a rate of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

import structlog

from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.fetch_penalties import Penalties
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_broker.runtime.replication.partition import Execute, Partition
from leadline_broker.runtime.replication.throttle import MovingThrottle
from leadline_client.backoff import Backoff
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
from leadline_common.settings import BrokerSettings
from leadline_common.tracing.spans import background_context

logger = structlog.get_logger(__name__)

NO_SESSION: Final = 0
_ANSWER_MARGIN_MS: Final = 10_000
"""How much longer than its wait a response may take."""
_DURABLE_POLL_S: Final = 0.005
"""How often to check a log that a full disk keeps from being fsynced."""
_FIRST_PAUSE_MS: Final = 20
_LONGEST_PAUSE_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class FetchContext:
    """The collaborators that all fetchers of a broker share.

    `nonces` increase over all fetchers, so that no leader sees one twice from the same
    incarnation (rule R3). `throttle` and `moving_flusher` are for moving replicas.
    """

    broker_state: BrokerState
    peers: Peers
    flusher: GroupFlusher
    moving_flusher: GroupFlusher
    execute: Execute
    clock: Clock
    random: Random
    settings: BrokerSettings
    nonces: Iterator[int]
    throttle: MovingThrottle

    def backoff(self) -> Backoff:
        """Return a new backoff."""
        return Backoff(self.random.random, first_ms=_FIRST_PAUSE_MS, longest_ms=_LONGEST_PAUSE_MS)


class ReplicaFetcherManager:
    """All fetchers of this broker. Owned by the event loop."""

    def __init__(self, context: FetchContext) -> None:
        self._context = context
        self._fetchers: dict[tuple[int, int | str], ReplicaFetcher] = {}
        self._tasks: dict[tuple[int, int | str], asyncio.Task[None]] = {}
        self._fetcher_of: dict[Partition, ReplicaFetcher] = {}

    def start(self, partition: Partition, leader: int) -> None:
        """Fetch the partition from `leader`, starting at its log end."""
        self.stop(partition)
        group = None
        lane: int | str = partition.partition % self._context.settings.num_replica_fetchers
        if partition.replica.catching_up:
            lane = group = self._context.throttle.group_of(partition.key)
        fetcher = self._fetchers.get((leader, lane))
        if fetcher is None:
            on_caught_up = None if group is None else partial(self.start, leader=leader)
            fetcher = ReplicaFetcher(leader, self._context, group, on_caught_up)
            self._fetchers[leader, lane] = fetcher
            self._tasks[leader, lane] = asyncio.create_task(
                fetcher.run(), name=f"fetcher-{leader}-{lane}", context=background_context()
            )
        self._fetcher_of[partition] = fetcher
        fetcher.add(partition)

    def regroup(self) -> None:
        """Fetch moving replicas by the fetchers of their groups, and end those without any."""
        for partition, fetcher in list(self._fetcher_of.items()):
            group = self._context.throttle.group_of(partition.key)
            if fetcher.group is not None and fetcher.group != group:
                self.start(partition, fetcher.leader)
        for lane, fetcher in list(self._fetchers.items()):
            if fetcher.group is not None and not len(fetcher):
                del self._fetchers[lane]
                self._tasks.pop(lane).cancel()

    def stop(self, partition: Partition) -> None:
        """Stop fetching the partition, if it is being fetched."""
        fetcher = self._fetcher_of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    async def close(self) -> None:
        """Stop all fetchers."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        self._fetchers.clear()
        self._fetcher_of.clear()


@dataclass(eq=False)
class ReplicaFetcher:
    """Fetches some partitions from one leader.

    With a `group` they are moving replicas: their fetches are throttled at its rate, and
    `on_caught_up(partition)` is called for each that has caught up.
    """

    leader: int
    context: FetchContext
    group: str | None = None
    on_caught_up: Callable[[Partition], None] | None = None
    _partitions: dict[ReplicaKey, Partition] = field(default_factory=dict, init=False)
    _changed: dict[ReplicaKey, Partition] = field(default_factory=dict, init=False)
    _forgotten: dict[ReplicaKey, None] = field(default_factory=dict, init=False)
    _session: int = field(default=NO_SESSION, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _in_flight: asyncio.Task[ReplicaFetchResponse] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._flusher = self.context.moving_flusher if self.on_caught_up else self.context.flusher
        self._penalties = Penalties(self.context.clock, self.context.backoff)
        self._backoff = self.context.backoff()

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        """Add a partition; this cancels a request that waits at the leader."""
        self._partitions[partition.key] = self._changed[partition.key] = partition
        self._forgotten.pop(partition.key, None)
        self._penalties.lift(partition.key)
        self._wake.set()
        if self._in_flight is not None:
            self._in_flight.cancel()

    def remove(self, partition: Partition) -> None:
        """Remove a partition."""
        self._partitions.pop(partition.key, None)
        self._changed.pop(partition.key, None)
        self._penalties.lift(partition.key)
        self._forgotten[partition.key] = None

    async def run(self) -> None:
        """Fetch, whatever fails, because nothing else fetches these partitions; never returns."""
        while True:
            try:
                await self._fetch()
            except LeadlineError as error:
                await self._failed(error.message)
            except Exception:
                logger.exception("unexpected error in a fetch", leader=self.leader)
                await self._failed("an unexpected error of this broker")

    async def _fetch(self) -> None:
        """Send one request and apply the response, or wait until there is something to fetch.

        Raises:
            LeadlineError: the request failed.

        """
        await self._until_durable()
        if pause_ms := self._throttled_ms():
            await asyncio.sleep(pause_ms / 1000)
            return
        request = self._next_request()
        if request is None:
            await self._idle()
            return
        response = await self._send(request)
        if response is None:
            self._session = NO_SESSION
            return
        self._session = request.session
        self._backoff.reset()
        self._apply(response)
        await self._flusher.settled()

    async def _until_durable(self) -> None:
        """Wait until the logs whose positions the next request states are fsynced."""
        while True:
            await self._flusher.settled()
            if all(
                partition.log.durable_end_offset == partition.log.log_end_offset
                for partition in self._changed.values()
            ):
                return
            await asyncio.sleep(_DURABLE_POLL_S)

    def _throttled_ms(self) -> float:
        """Return how long the throttle forbids fetching."""
        if self.group is None or not self._partitions:
            return 0.0
        return self.context.throttle.receiving.delay_ms(self.group)

    async def _idle(self) -> None:
        """Wait for a partition, or for the end of a delay."""
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
        nonce = next(self.context.nonces)
        rows = self._rows()
        if not rows and self._session == NO_SESSION:
            return None
        forgotten, self._forgotten = self._forgotten, {}
        settings, broker_state = self.context.settings, self.context.broker_state
        wait_ms = settings.replica_fetch_wait_max_ms
        return ReplicaFetchRequest(
            broker_id=broker_state.broker_id,
            incarnation=broker_state.incarnation,
            session=self._session or nonce,
            nonce=nonce,
            wait_ms=int(min(wait_ms, self._penalties.next_due_ms() or wait_ms)),
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=self._max_bytes(),
            topics=rows,
            forgotten=_forgotten_topics(forgotten),
            leaving=broker_state.leaving,
        )

    def _max_bytes(self) -> int:
        largest = self.context.settings.replica_fetch_max_bytes
        if self.group is None:
            return largest
        return min(largest, self.context.throttle.receiving.available(self.group))

    def _rows(self) -> list[FetchTopic]:
        """Return all positions in a new session, otherwise those that changed."""
        if self._session == NO_SESSION:
            self._changed = {
                key: p for key, p in self._partitions.items() if not self._penalties.delays(key)
            }
        rows: dict[str, list[FetchRow]] = {}
        postponed = {}
        for key, partition in self._changed.items():
            row = partition.replica.fetch_row()
            if row is None:
                postponed[key] = partition
            else:
                rows.setdefault(partition.topic_id, []).append(row)
        self._changed = postponed
        return [FetchTopic(topic_id, topic_rows) for topic_id, topic_rows in rows.items()]

    async def _send(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse | None:
        """Return the response to this request, or None if the session has ended.

        Raises:
            LeadlineError: there is no valid response.

        """
        address = self.context.broker_state.internal_address_of(self.leader)
        if address is None:
            raise ConnectionLost("the leader's address is unknown")
        leader, incarnation = address
        call = self._in_flight = asyncio.create_task(
            self.context.peers.fetch(leader, request, request.wait_ms + _ANSWER_MARGIN_MS)
        )
        try:
            await asyncio.wait([call])
        finally:
            call.cancel()
            self._in_flight = None
        if call.cancelled():
            return None
        response = call.result()
        if response.error_code == FetchSessionUnknown.code and self._session != NO_SESSION:
            return None
        if response.error_code != NO_ERROR:
            raise ConnectionLost(f"the leader returned error {response.error_code}")
        if response.nonce != request.nonce or response.incarnation < incarnation:
            raise ConnectionLost("the response belongs to another request or incarnation")
        return response

    async def _failed(self, reason: str) -> None:
        """End the session and pause; fail the produces that were accepted while leading."""
        self._session = NO_SESSION
        for partition in list(self._partitions.values()):
            if partition.replica.has_parked:
                self.context.execute(partition, partition.replica.give_up())
        pause_ms = self._backoff.next_ms()
        if self._backoff.failures == 1:
            logger.info("fetch failed", leader=self.leader, reason=reason)
        await asyncio.sleep(pause_ms / 1000)

    def _apply(self, response: ReplicaFetchResponse) -> None:
        if self.group is not None:
            rows = (row for topic in response.topics for row in topic.partitions)
            size = sum(len(row.records) for row in rows)
            self.context.throttle.receiving.take(self.group, size)
        for topic in response.topics:
            for row in topic.partitions:
                partition = self._partitions.get((topic.topic_id, row.partition))
                if partition is not None:
                    self._apply_row(partition, row)

    def _apply_row(self, partition: Partition, row: FetchedRow) -> None:
        """Pass a row to the replica; delay the partition if it refuses the row."""
        try:
            effects = partition.replica.on_fetch_answer(row)
            self.context.execute(partition, effects)
        except LeadlineError as error:
            logger.warning(
                "fetched records refused",
                topic=partition.topic,
                partition=partition.partition,
                leader=self.leader,
                reason=error.message,
            )
            self._penalties.impose(partition.key)
            return
        if row.error_code not in {NO_ERROR, OffsetOutOfRange.code}:
            self._penalties.impose(partition.key)
            return
        self._penalties.lift(partition.key)
        if self.on_caught_up is not None and not partition.replica.catching_up:
            self.on_caught_up(partition)
        elif row.records or row.diverging_end >= 0 or row.error_code != NO_ERROR:
            self._changed[partition.key] = partition


def _forgotten_topics(keys: dict[ReplicaKey, None]) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, []).append(partition)
    return [ForgottenTopic(topic_id, partitions) for topic_id, partitions in topics.items()]
