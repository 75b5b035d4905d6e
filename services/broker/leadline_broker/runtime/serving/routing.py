"""Requests for any partition at any broker: what this broker does not lead, it passes on.

The leader answers a request that was passed on itself, or refuses it: it never passes it on again.
A refusal because leadership has moved is followed to the next leader until the request's deadline.
An append that was sent and not answered is never repeated: its outcome is unknown (rule R15).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.backoff import Backoff
from leadline_client.batch_header import Buffer, parse_headers
from leadline_client.batches import NO_PRODUCER_ID
from leadline_client.errors import (
    BrokerFenced,
    ConnectionLost,
    FencedLeaderEpoch,
    InvalidRequest,
    LeaderHint,
    LeaderNotAvailable,
    LeadlineError,
    NotLeader,
    OffsetNotAvailable,
    StaleIncarnation,
    TopicIdMismatch,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import Acks, ProduceResult
from leadline_common.bulk_offsets import PartitionEnds
from leadline_common.clock import Clock
from leadline_common.identity import InternalAddress
from leadline_common.routed_records import (
    RoutedAppend,
    RoutedAppended,
    RoutedData,
    RoutedOffsets,
    RoutedRead,
    RoutedRequest,
)
from leadline_common.waiting import CountedWait

_T = TypeVar("_T")

FIND_LEADER_MS: Final = 10_000
"""How long a read may look for a leader, which is longer than a failover takes."""
_LOOKUP_MS: Final = 3_000
_MARGIN_MS: Final = 1_000
"""How much longer than the leader's own wait its answer may take."""
_OTHER_EPOCH: Final = (FencedLeaderEpoch, UnknownLeaderEpoch)
_MOVED: Final = (
    NotLeader,
    LeaderNotAvailable,
    StaleIncarnation,
    TopicIdMismatch,
    UnknownTopic,
    UnknownPartition,
    BrokerFenced,
)
"""Refusals of the broker that a request was passed on to: it does not lead as expected."""

_Errors = tuple[type[LeadlineError], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read of a partition; see `Serving.fetch`."""

    offset: int
    max_bytes: int
    min_bytes: int = 1
    wait_ms: int = 0
    leader_epoch: int | None = None
    last_epoch: int | None = None
    topic_id: str | None = None
    any_replica: bool = False


@dataclass(frozen=True, slots=True)
class _Leader:
    """Where to pass a request on, and the identities that go with it (rule R1)."""

    address: InternalAddress
    identity: dict[str, Any]


@dataclass(eq=False, kw_only=True)
class RoutedRecords:
    """Serves clients from any partition. Owned by the event loop.

    Callers have checked the rights and the quotas of their clients.
    """

    broker_state: BrokerState
    metadata: ClusterMetadataCache
    serving: Serving
    peers: Peers
    clock: Clock
    random: Random

    async def produce(
        self, topic: str, number: int, data: bytearray, *, acks: Acks, timeout_ms: int
    ) -> ProduceResult:
        """Append v2 batches without producer ids at the leader; see `Serving.produce`.

        `timeout_ms` includes the search for a leader.

        Raises:
            InvalidRequest: a batch has a producer id, whose owner only the leader checks.
            NotLeader, LeaderNotAvailable, BrokerFenced, FencedLeaderEpoch, UnknownLeaderEpoch,
            StaleIncarnation, TopicIdMismatch: no leader accepted the batches in time; nothing
                was appended.
            ConnectionLost: the leader did not answer; the outcome is unknown.
            LeadlineError: another error of `Serving.produce`.

        """
        _require_no_producer(data)

        async def here(left_ms: int) -> ProduceResult:
            return await self.serving.produce(topic, number, data, acks=acks, timeout_ms=left_ms)

        async def there(leader: _Leader, left_ms: int) -> ProduceResult:
            request = RoutedAppend(
                **leader.identity, records=bytes(data), acks=acks, timeout_ms=left_ms
            )
            done = await self.peers.append_routed(leader.address, request, left_ms + _MARGIN_MS)
            return ProduceResult(done.base_offset, done.leader_epoch, done.count)

        return await self._at_leader(
            topic, number, timeout_ms, (*_MOVED, *_OTHER_EPOCH), here, there
        )

    async def fetch(self, topic: str, number: int, reading: Reading) -> FetchedData:
        """Return committed batches of any partition; see `Serving.fetch`.

        With `any_replica` an in-sync replica here serves the request rather than the leader.

        Raises:
            LeaderNotAvailable: no leader has answered in time.
            LeadlineError: another error of `Serving.fetch`.

        """
        polled_ms = self.clock.monotonic_ms() + reading.wait_ms

        def remaining() -> Reading:
            left_ms = max(0, int(polled_ms - self.clock.monotonic_ms()))
            return replace(reading, wait_ms=min(reading.wait_ms, left_ms))

        async def here(_: int) -> FetchedData:
            try:
                return await self.fetch_here(topic, number, remaining())
            except OffsetNotAvailable:
                # This replica follows and is behind: the leader may have the offset.
                return await self.fetch_here(topic, number, replace(remaining(), any_replica=False))

        async def there(leader: _Leader, left_ms: int) -> FetchedData:
            return await self._fetch_there(leader, remaining(), left_ms)

        moved: _Errors = _MOVED if reading.leader_epoch is not None else (*_MOVED, *_OTHER_EPOCH)
        if reading.topic_id is not None:
            moved = tuple(error for error in moved if error is not TopicIdMismatch)
        timeout_ms = reading.wait_ms + FIND_LEADER_MS
        return await self._at_leader(topic, number, timeout_ms, moved, here, there)

    async def offsets(
        self,
        topic: str,
        number: int,
        timestamp_ms: int | None = None,
        leader_epoch: int | None = None,
    ) -> PartitionEnds:
        """Return log start, high watermark and log end of any partition; see `Serving.offsets`.

        Raises:
            LeaderNotAvailable: no leader has answered in time.
            LeadlineError: another error of `Serving.offsets`.

        """

        async def here(_: int) -> PartitionEnds:
            return await self.serving.offsets(topic, number, timestamp_ms, leader_epoch)

        async def there(leader: _Leader, left_ms: int) -> PartitionEnds:
            request = RoutedOffsets(**_stating(leader, leader_epoch), timestamp=timestamp_ms)
            timeout_ms = min(left_ms, _LOOKUP_MS)
            return await _read(self.peers.offsets_routed(leader.address, request, timeout_ms))

        moved: _Errors = _MOVED if leader_epoch is not None else (*_MOVED, *_OTHER_EPOCH)
        return await self._at_leader(topic, number, FIND_LEADER_MS, moved, here, there)

    async def fetch_here(self, topic: str, number: int, reading: Reading) -> FetchedData:
        """Return committed batches that this broker has; see `Serving.fetch`."""
        return await self.serving.fetch(
            topic,
            number,
            reading.offset,
            max_bytes=reading.max_bytes,
            min_bytes=reading.min_bytes,
            wait_ms=reading.wait_ms,
            leader_epoch=reading.leader_epoch,
            last_epoch=reading.last_epoch,
            topic_id=reading.topic_id,
            any_replica=reading.any_replica,
        )

    async def _fetch_there(self, leader: _Leader, reading: Reading, left_ms: int) -> FetchedData:
        identity = _stating(leader, reading.leader_epoch)
        if reading.topic_id is not None:
            identity = identity | {"topic_id": reading.topic_id}
        request = RoutedRead(
            **identity,
            offset=reading.offset,
            max_bytes=reading.max_bytes,
            min_bytes=reading.min_bytes,
            wait_ms=reading.wait_ms,
            last_epoch=reading.last_epoch,
        )
        timeout_ms = min(left_ms, reading.wait_ms + _LOOKUP_MS)
        with CountedWait(asked=reading.wait_ms > 0):
            answer = await _read(self.peers.read_routed(leader.address, request, timeout_ms))
        return FetchedData(**msgspec.structs.asdict(answer))

    async def _at_leader(
        self,
        topic: str,
        number: int,
        timeout_ms: int,
        moved: _Errors,
        here: Callable[[int], Awaitable[_T]],
        there: Callable[[_Leader, int], Awaitable[_T]],
    ) -> _T:
        """Serve a request here or at the leader, which is followed until `timeout_ms` are over.

        `moved` are the refusals after which another broker may lead.
        """
        deadline = self.clock.monotonic_ms() + timeout_ms
        pauses = Backoff(self.random.random, first_ms=20, longest_ms=500)
        while True:
            left_ms = max(1, int(deadline - self.clock.monotonic_ms()))
            try:
                leader = None
                try:
                    return await here(left_ms)
                except NotLeader as elsewhere:
                    leader = self._leader(topic, number, elsewhere.leader)
                return await there(leader, left_ms)
            except LeadlineError as error:
                followed = moved if leader is not None else (LeaderNotAvailable,)
                pause_ms = pauses.next_ms()
                if not isinstance(error, followed) or pause_ms >= left_ms:
                    raise
            await asyncio.sleep(pause_ms / 1000)

    def _leader(self, topic: str, number: int, hint: LeaderHint | None) -> _Leader:
        """Return the leader to pass a request on to.

        Raises:
            LeaderNotAvailable: its address is not known yet.

        """
        found = hint and self.broker_state.internal_address_of(hint.id)
        topic_id = self.metadata.topic_id(topic)
        if hint is None or not found or topic_id is None:
            raise LeaderNotAvailable(f"the address of the leader of {topic}-{number} is unknown")
        address, incarnation = found
        return _Leader(
            address,
            {
                "broker_id": hint.id,
                "incarnation": incarnation,
                "sender": self.broker_state.broker_id,
                "topic": topic,
                "topic_id": topic_id,
                "partition": number,
                "leader_epoch": hint.epoch,
            },
        )


@dataclass(eq=False, kw_only=True)
class RoutedRequests:
    """Answers as the leader what other brokers pass on. Owned by the event loop."""

    broker_state: BrokerState
    serving: Serving

    async def append(self, request: RoutedAppend) -> RoutedAppended:
        """Append batches whose client another broker has checked.

        Raises:
            InvalidRequest: the request is for another broker, or a batch has a producer id.
            StaleIncarnation, TopicIdMismatch: another broker or topic is meant.
            LeadlineError: another error of `Serving.produce`.

        """
        self._require_addressed(request)
        _require_no_producer(request.records)
        done = await self.serving.produce(
            request.topic,
            request.partition,
            bytearray(request.records),
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            leader_epoch=request.leader_epoch,
            topic_id=request.topic_id,
        )
        return RoutedAppended(done.base_offset, done.leader_epoch, done.count)

    async def read(self, request: RoutedRead) -> RoutedData:
        """Return committed batches.

        Raises:
            InvalidRequest: the request is for another broker.
            StaleIncarnation, TopicIdMismatch: another broker or topic is meant.
            LeadlineError: another error of `Serving.fetch`.

        """
        self._require_addressed(request)
        if not request.any_replica:
            self._require_led(request)
        data = await self.serving.fetch(
            request.topic,
            request.partition,
            request.offset,
            max_bytes=request.max_bytes,
            min_bytes=request.min_bytes,
            wait_ms=request.wait_ms,
            leader_epoch=request.leader_epoch,
            last_epoch=request.last_epoch,
            topic_id=request.topic_id,
            any_replica=request.any_replica,
        )
        if not request.any_replica:
            self._require_led(request)
        return RoutedData(**asdict(data))

    async def offsets(self, request: RoutedOffsets) -> PartitionEnds:
        """Return the offsets of a partition.

        Raises:
            InvalidRequest: the request is for another broker.
            StaleIncarnation, TopicIdMismatch: another broker or topic is meant.
            LeadlineError: another error of `Serving.offsets`.

        """
        self._require_addressed(request)
        self._require_led(request)
        ends = await self.serving.offsets(request.topic, request.partition, request.timestamp)
        self._require_led(request)
        return ends

    def _require_addressed(self, request: RoutedRequest) -> None:
        self.broker_state.require_addressed(request.broker_id, request.incarnation)

    def _require_led(self, request: RoutedRequest) -> None:
        self.serving.led(
            request.topic, request.partition, request.leader_epoch, topic_id=request.topic_id
        )


def _stating(leader: _Leader, leader_epoch: int | None) -> dict[str, Any]:
    """Return the identities of a request to a leader, with the epoch that the client states."""
    stated = {} if leader_epoch is None else {"leader_epoch": leader_epoch}
    return leader.identity | stated


def _require_no_producer(data: Buffer) -> None:
    if any(header.producer_id != NO_PRODUCER_ID for header in parse_headers(data)):
        raise InvalidRequest("an idempotent producer sends its batches to the leader itself")


async def _read(answer: Awaitable[_T]) -> _T:
    """Await the answer to a read, which may be repeated whatever became of it.

    Raises:
        LeaderNotAvailable: there is none.

    """
    try:
        return await answer
    except ConnectionLost as error:
        raise LeaderNotAvailable(f"the leader did not answer: {error.message}") from error
