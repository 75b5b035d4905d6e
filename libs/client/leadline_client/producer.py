"""Producers: records in, batches out, a place in the log back.

`AsyncProducer` runs on an event loop; `Producer` is the same one on a thread of
its own. Idempotent by default: a batch whose outcome is unknown is sent again
with the same sequence numbers, and the broker recognises it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from typing import Self

from leadline_client import batches
from leadline_client.accumulator import Batch, Lane, Numbering, estimated_size, spoils_numbering
from leadline_client.client import AsyncLeadlineClient
from leadline_client.errors import InvalidRequest, LeadlineError, UnknownPartition, Unreachable
from leadline_client.event_loop_thread import EventLoopThread
from leadline_client.partition_counts import PartitionCountCache
from leadline_client.partitioner import StickyPartitioner
from leadline_client.payloads import OutgoingRecord, ProducerIdentity
from leadline_client.wire import Acks, ProduceResult

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record is in the log; the offset is -1 after acks=0."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How a producer works.

    `linger_ms`: how long a batch waits for more records. `batch_bytes`: a batch
    goes at once when it is this big. `buffer_bytes`: `send` waits while more than
    this is not yet acknowledged. `delivery_timeout_s`: when a batch is given up,
    retries included. `idempotent`: None means with acks=all only. `metadata_max_age_s`:
    how soon a partition that was added is sent to, without anything else to say so.
    """

    acks: Acks = "all"
    linger_ms: float = 5.0
    batch_bytes: int = 256 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    compression: str = "none"
    idempotent: bool | None = None
    delivery_timeout_s: float = 120.0
    metadata_max_age_s: float = 300.0

    @property
    def numbers_batches(self) -> bool:
        """Whether batches carry a producer id and sequence numbers."""
        if self.idempotent and self.acks != "all":
            raise InvalidRequest("an idempotent producer needs acks=all")
        return self.acks == "all" if self.idempotent is None else self.idempotent


_DEFAULTS = ProducerSettings()
_ANONYMOUS = ProducerIdentity(batches.NO_PRODUCER_ID, -1)
_Lane = Lane[asyncio.Future[RecordPlace]]
_Batch = Batch[asyncio.Future[RecordPlace]]


class AsyncProducer:
    """A producer on the running event loop; one batch per partition is in flight."""

    def __init__(self, client: AsyncLeadlineClient, settings: ProducerSettings = _DEFAULTS) -> None:
        self._client = client
        self._settings = settings
        self._numbered = settings.numbers_batches
        self._identity: asyncio.Task[ProducerIdentity] | None = None
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._wake: dict[tuple[str, int], asyncio.Event] = {}
        self._senders: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._partitioners: defaultdict[str, StickyPartitioner] = defaultdict(StickyPartitioner)
        self._counts = PartitionCountCache(client, settings.metadata_max_age_s)
        self._unacknowledged = 0
        self._room = asyncio.Condition()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> asyncio.Future[RecordPlace]:
        """Take a record; the future gives its place, or why it has none.

        Waits only while the buffer is full, and for a topic's first metadata.
        Records of one partition are appended in the order of the calls.

        Raises:
            UnknownTopic, UnknownPartition: there is nowhere to send to.

        """
        count = await self._counts.of(topic, partition)
        partitioner = self._partitioners[topic]
        number = partitioner.choose(key, count) if partition is None else partition
        if not 0 <= number < count:
            raise UnknownPartition(f"{topic!r} has {count} partitions, there is no {number}")
        record = OutgoingRecord(value, key, tuple(headers), timestamp)
        await self._reserve(estimated_size(record))
        future: asyncio.Future[RecordPlace] = asyncio.get_running_loop().create_future()
        lane = self._lane(topic, number)
        if lane.add(record, future, time.monotonic()) and partition is None and key is None:
            partitioner.batch_closed(number, count)
        self._start_sender(topic, number)
        return future

    async def flush(self) -> None:
        """Return when everything sent so far is acknowledged or has failed."""
        for key, lane in self._lanes.items():
            if lane:
                lane.flush()
                self._wake[key].set()
        goals = [(lane, lane.added) for lane in self._lanes.values()]
        async with self._room:
            await self._room.wait_for(lambda: all(lane.settled >= goal for lane, goal in goals))

    async def aclose(self) -> None:
        """Flush, then end. The client stays open."""
        await self.flush()
        await self._counts.aclose()
        if self._identity is not None:
            self._identity.cancel()

    async def abort(self) -> None:
        """End at once: whatever is not acknowledged yet is cancelled, its fate unknown."""
        await self._counts.aclose()
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        for lane in self._lanes.values():
            while lane:
                batch = lane.take()
                _cancel(batch)
                await self._settle(lane, batch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.aclose()
        else:
            await self.abort()

    async def _reserve(self, size: int) -> None:
        limit = self._settings.buffer_bytes
        if self._unacknowledged and self._unacknowledged + size > limit:
            async with self._room:
                await self._room.wait_for(
                    lambda: not self._unacknowledged or self._unacknowledged + size <= limit
                )
        self._unacknowledged += size

    async def _settle(self, lane: _Lane, batch: _Batch) -> None:
        """Count a batch whose senders have been answered; wake who waits for that, or for room."""
        async with self._room:
            self._unacknowledged -= batch.size
            lane.settled += len(batch.records)
            self._room.notify_all()

    def _lane(self, topic: str, partition: int) -> _Lane:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            settings = self._settings
            lane = Lane(batch_bytes=settings.batch_bytes, linger_s=settings.linger_ms / 1000)
            self._lanes[topic, partition] = lane
            self._wake[topic, partition] = asyncio.Event()
        return lane

    def _start_sender(self, topic: str, partition: int) -> None:
        """Have the lane drained; a sender lives only while its lane holds something."""
        key = (topic, partition)
        if key in self._senders:
            if self._lanes[key].due_in(time.monotonic()) <= 0:
                self._wake[key].set()
            return
        sender = asyncio.create_task(self._drain(topic, partition))
        self._senders[key] = sender
        sender.add_done_callback(lambda ended: self._forget_sender(key, ended))

    def _forget_sender(self, key: tuple[str, int], ended: asyncio.Task[None] | None) -> None:
        if self._senders.get(key) is ended:
            del self._senders[key]

    async def _drain(self, topic: str, partition: int) -> None:
        key = (topic, partition)
        lane, wake = self._lanes[key], self._wake[key]
        while lane:
            await self._linger(lane, wake)
            batch = lane.take()
            try:
                await self._deliver(topic, partition, lane, batch)
            finally:
                await self._settle(lane, batch)
        # No await between the last look at the lane and this: no record is left behind.
        self._forget_sender(key, asyncio.current_task())

    @staticmethod
    async def _linger(lane: _Lane, wake: asyncio.Event) -> None:
        while (wait_s := lane.due_in(time.monotonic())) > 0:
            wake.clear()
            try:
                await asyncio.wait_for(wake.wait(), wait_s)
            except TimeoutError:
                return

    async def _deliver(self, topic: str, partition: int, lane: _Lane, batch: _Batch) -> None:
        try:
            result = await self._append(topic, partition, lane, batch)
        except Exception as error:
            # Whatever it is, it belongs to those who wait for the batch; the lane goes on.
            if not isinstance(error, LeadlineError) or spoils_numbering(error):
                lane.renew_identity()
            _fail(batch, error)
            return
        except asyncio.CancelledError:
            # It may be in the log: under the same numbers, the next would pass for a repetition.
            lane.renew_identity()
            _cancel(batch)
            raise
        if lane.numbering is not None:
            lane.numbering.advance(len(batch.records))
        for index, future in enumerate(batch.tokens):
            if not future.done():
                offset = result.base_offset + index if result.base_offset >= 0 else -1
                future.set_result(RecordPlace(topic, partition, offset))

    async def _append(
        self, topic: str, partition: int, lane: _Lane, batch: _Batch
    ) -> ProduceResult:
        numbering = await self._numbering(lane)
        identity = numbering.identity if numbering else _ANONYMOUS
        encoded = batches.encode(
            batch.records,
            now_ms=time.time_ns() // 1_000_000,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=numbering.next_sequence if numbering else batches.NO_SEQUENCE,
            compression=self._settings.compression,
        )
        return await self._client.produce_batches(
            topic,
            partition,
            encoded,
            acks=self._settings.acks,
            idempotent=numbering is not None,
            timeout_s=self._settings.delivery_timeout_s,
        )

    async def _numbering(self, lane: _Lane) -> Numbering | None:
        if self._numbered and lane.numbering is None:
            try:
                fresh = lane.needs_own_identity
                lane.numbering = Numbering(
                    await (self._new_identity() if fresh else self._shared_identity())
                )
            except LeadlineError as error:
                # Whatever became of that request, the batch itself was not sent.
                raise Unreachable(f"no producer id was to be had: {error}") from error
        return lane.numbering

    async def _shared_identity(self) -> ProducerIdentity:
        """Return the identity with which every lane begins, asked for once."""
        if self._identity is None or (self._identity.done() and self._identity.exception()):
            self._identity = asyncio.ensure_future(self._new_identity())
        return await asyncio.shield(self._identity)

    async def _new_identity(self) -> ProducerIdentity:
        return await self._client.new_producer_id()


def _cancel(batch: _Batch) -> None:
    for future in batch.tokens:
        future.cancel()


def _fail(batch: _Batch, error: Exception) -> None:
    for future in batch.tokens:
        if not future.done():
            future.set_exception(error)


class Producer:
    """A producer for code without an event loop; any thread may use it.

    with Producer("http://127.0.0.1:8081") as producer:
        place = producer.send("lines", b"hello").result()
    """

    def __init__(
        self, bootstrap: str | Sequence[str], settings: ProducerSettings = _DEFAULTS
    ) -> None:
        self._thread = EventLoopThread("leadline-producer")
        self._client = AsyncLeadlineClient(bootstrap)
        self._producer = self._thread.run(self._make(settings))

    async def _make(self, settings: ProducerSettings) -> AsyncProducer:
        return AsyncProducer(self._client, settings)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> ThreadFuture[RecordPlace]:
        """Take a record; the future gives its place. Blocks as `AsyncProducer.send` waits."""
        place: ThreadFuture[RecordPlace] = ThreadFuture()

        async def relay() -> None:
            future = await self._producer.send(
                topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp
            )
            future.add_done_callback(lambda done: _relay(done, place))

        self._thread.run(relay())
        return place

    def flush(self) -> None:
        """Return when everything sent so far is acknowledged or has failed."""
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        """Flush and end."""
        try:
            self._thread.run(self._producer.aclose())
            self._thread.run(self._client.aclose())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _relay(done: asyncio.Future[RecordPlace], place: ThreadFuture[RecordPlace]) -> None:
    if done.cancelled():
        place.cancel()
    elif (error := done.exception()) is not None:
        place.set_exception(error)
    else:
        place.set_result(done.result())
