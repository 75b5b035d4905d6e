"""Fetching from leaders: several fetchers per leader, each for some of its partitions.

Replication V3, section G, follower side, with incremental sessions as in KIP-227: the first
requests of a session name every partition, later ones only those whose position changed. A
fetcher has one request in flight. It fsyncs what it appended before the next request, because
a position states a durable end (rule R4). A second request, without positions, has the leader
answer one that waits, so that the next one can name partitions that were added meanwhile. Any
failure of a request ends the session, so that the next requests name every partition.

Replicas that a reassignment adds have separate fetchers and a flusher until they have caught
up, so that their throttle and their volume delay no other replica (KIP-73). There is one such
fetcher for each task, because each task has a rate of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sized
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Final, NamedTuple

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
from leadline_common.long_lived import collector_paused
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
MOST_POSITIONS: Final = 1_000
"""In one request. A leader takes about 10 µs for each, and serves nobody else meanwhile."""
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
    incarnation (rule R3). `throttle` and `moving_flusher` are for moving replicas. `acks` are the
    produces of the broker that wait to be committed.
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
    acks: Sized

    def backoff(self) -> Backoff:
        """Return a new backoff."""
        return Backoff(self.random.random, first_ms=_FIRST_PAUSE_MS, longest_ms=_LONGEST_PAUSE_MS)


class _Waiting(NamedTuple):
    """A request that waits at the leader: its session, and the limit that can end the wait."""

    session: int
    wait: asyncio.Timeout


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
    _waiting: _Waiting | None = field(default=None, init=False)
    _second: asyncio.Task[ReplicaFetchResponse] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._flusher = self.context.moving_flusher if self.on_caught_up else self.context.flusher
        self._penalties = Penalties(self.leader, self.context.clock, self.context.backoff)
        self._backoff = self.context.backoff()

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def not_begun(self) -> Collection[str]:
        """Which replicas cannot begin again at their leader's log start, and why."""
        return self._penalties.not_begun.values()

    def add(self, partition: Partition) -> None:
        """Add a partition; this ends the wait of a request at the leader."""
        self._partitions[partition.key] = self._changed[partition.key] = partition
        self._forgotten.pop(partition.key, None)
        self._penalties.lift(partition.key)
        self._wake.set()
        if self._waiting is not None and self._second is None:
            self._end_wait(self._waiting)

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
        try:
            responses = await self._send(request)
        except FetchSessionUnknown:
            self._session = NO_SESSION
            return
        self._session = request.session
        self._backoff.reset()
        for response in responses:
            self._apply(response)

    async def _until_durable(self) -> None:
        """Wait until the logs whose positions the next request states are fsynced."""
        while True:
            await self._flusher.settled()
            if all(
                partition.log.durable_end_offset == partition.log.log_end_offset
                for partition in islice(self._changed.values(), MOST_POSITIONS)
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
        rows, are_all = self._rows()
        if not rows and self._session == NO_SESSION:
            return None
        forgotten, self._forgotten = self._forgotten, {}
        wait_ms = self.context.settings.replica_fetch_wait_max_ms
        return self._request(
            nonce,
            session=self._session or nonce,
            wait_ms=int(min(wait_ms, self._penalties.next_due_ms() or wait_ms)) if are_all else 0,
            rows=rows,
            forgotten=_forgotten_topics(forgotten),
        )

    def _request(
        self,
        nonce: int,
        *,
        session: int,
        wait_ms: int,
        rows: list[FetchTopic],
        forgotten: list[ForgottenTopic],
    ) -> ReplicaFetchRequest:
        broker_state = self.context.broker_state
        return ReplicaFetchRequest(
            broker_id=broker_state.broker_id,
            incarnation=broker_state.incarnation,
            session=session,
            nonce=nonce,
            wait_ms=wait_ms,
            min_bytes=self.context.settings.replica_fetch_min_bytes,
            max_bytes=self._max_bytes(),
            topics=rows,
            forgotten=forgotten,
            leaving=broker_state.leaving,
            takes_parts=True,
        )

    def _max_bytes(self) -> int:
        largest = self.context.settings.replica_fetch_max_bytes
        if self.group is None:
            return largest
        return min(largest, self.context.throttle.receiving.available(self.group))

    def _rows(self) -> tuple[list[FetchTopic], bool]:
        """Return positions that changed, any in a new session; and whether these are all.

        Replicas that cannot fetch now are left for a later request.
        """
        if self._session == NO_SESSION:
            self._changed = self._penalties.without_delayed(self._partitions)
        rows: dict[str, list[FetchRow]] = {}
        named: list[ReplicaKey] = []
        for key, partition in self._changed.items():
            if len(named) == MOST_POSITIONS:
                break
            row = partition.replica.fetch_row()
            if row is not None:
                rows.setdefault(partition.topic_id, []).append(row)
                named.append(key)
        for key in named:
            del self._changed[key]
        topics = [FetchTopic(topic_id, topic_rows) for topic_id, topic_rows in rows.items()]
        return topics, len(named) < MOST_POSITIONS

    async def _send(self, request: ReplicaFetchRequest) -> list[ReplicaFetchResponse]:
        """Return the responses to this request.

        There are two if partitions were added while the request waited at the leader.

        Raises:
            FetchSessionUnknown: the session has ended.
            LeadlineError: there is no valid response.

        """
        try:
            async with asyncio.timeout(None) as wait:
                self._waiting = _Waiting(request.session, wait)
                first = await self._ask(request)
            self._waiting = None
            return [first] if self._second is None else [first, await self._second]
        except TimeoutError:
            if self._second is not None:
                await self._second  # It has failed, and says why.
            raise
        finally:
            self._waiting = None
            if self._second is not None:
                self._second.cancel()
                self._second = None

    def _end_wait(self, waiting: _Waiting) -> None:
        """Send a second request, at which the leader answers the one that waits.

        If it fails, the wait for the first one ends, too.
        """
        request = self._request(
            next(self.context.nonces), session=waiting.session, wait_ms=0, rows=[], forgotten=[]
        )

        def ended(second: asyncio.Task[ReplicaFetchResponse]) -> None:
            failed = not second.cancelled() and second.exception() is not None
            if failed and self._waiting is waiting:
                waiting.wait.reschedule(asyncio.get_running_loop().time())

        self._second = asyncio.create_task(self._ask(request), context=background_context())
        self._second.add_done_callback(ended)

    async def _ask(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        """Return the response to one request.

        Raises:
            FetchSessionUnknown: the leader does not know the session.
            LeadlineError: there is no valid response.

        """
        address = self.context.broker_state.internal_address_of(self.leader)
        if address is None:
            raise ConnectionLost("the leader's address is unknown")
        leader, incarnation = address
        response = await self.context.peers.fetch(
            leader, request, request.wait_ms + _ANSWER_MARGIN_MS
        )
        if response.error_code == FetchSessionUnknown.code and request.session != request.nonce:
            raise FetchSessionUnknown(f"the leader does not know session {request.session}")
        if response.error_code != NO_ERROR:
            raise ConnectionLost(f"the leader returned error {response.error_code}")
        if response.nonce != request.nonce or response.incarnation < incarnation:
            raise ConnectionLost("the response belongs to another request or incarnation")
        return response

    async def _failed(self, reason: str) -> None:
        """End the session and pause; fail the produces that were accepted while leading."""
        self._session = NO_SESSION
        if self.context.acks:  # Of many replicas, a look at each takes milliseconds.
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
            with nullcontext() if row.known is None else collector_paused():
                effects = partition.replica.on_fetch_answer(row)
            self.context.execute(partition, effects)
        except LeadlineError as error:
            self._penalties.refuse(partition, error)
            return
        if row.error_code not in {NO_ERROR, OffsetOutOfRange.code}:
            self._penalties.impose(partition.key)
            return
        moved = row.records or row.diverging_end >= 0 or row.error_code != NO_ERROR
        if moved or not self._penalties.delays(partition.key):
            self._penalties.lift(partition.key)
        # The leader does not send again what was refused until it is told the position again.
        if self.on_caught_up is not None and not partition.replica.catching_up:
            self.on_caught_up(partition)
        elif moved:
            self._changed[partition.key] = partition


def _forgotten_topics(keys: dict[ReplicaKey, None]) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, []).append(partition)
    return [ForgottenTopic(topic_id, partitions) for topic_id, partitions in topics.items()]
