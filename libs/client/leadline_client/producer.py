"""The asynchronous producer, which collects records into batches and appends them.

`sync_producer.py` has the blocking one. Both are idempotent by default: a batch whose
outcome is unknown is sent again with the same sequence numbers, by which the broker
recognises a duplicate.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Self

from leadline_client.accumulator import (
    ProducerSequence,
    RecordAccumulator,
    chunks_of,
    estimated_size,
    needs_new_producer_id,
)
from leadline_client.client import AsyncSource, async_client
from leadline_client.codec import require_compression
from leadline_client.errors import (
    BodyTooLarge,
    ClusterChanged,
    LeadlineError,
    Unreachable,
)
from leadline_client.partition_queue import (
    Accumulator,
    Acknowledgement,
    Batch,
    PartitionQueue,
    acknowledge,
    cancel,
    fail,
    halves_of,
)
from leadline_client.partitioner import PartitionCountCache, StickyPartitioner
from leadline_client.payloads import EncodedBatch, OutgoingRecord, ProducerIdentity
from leadline_client.producer_settings import DEFAULTS, ProducerSettings
from leadline_client.security import Security
from leadline_client.sent_records import AsyncSentRecords, RecordMetadata, SentRun
from leadline_client.serializers.protocols import Serializer
from leadline_client.serializers.records import RecordSerializer
from leadline_client.type_parameters import K, V
from leadline_client.wire import ProduceResult, TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


_RUNS_PER_BATCH: Final = 16
"""Records that are sent together stay together: a batch is full when the next ones do not fit."""


class AsyncProducer(Generic[K, V]):
    """A producer on the running event loop, with one batch per partition in flight.

    `source` is a client, which stays open when the producer is closed, or the addresses of brokers
    with their `security`. Serializers make bytes of keys and values; without them, both are bytes.
    `random` returns numbers in [0, 1): it chooses the first partition of records without a key.
    """

    def __init__(
        self,
        source: AsyncSource,
        settings: ProducerSettings = DEFAULTS,
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        security: Security | None = None,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._idempotent = settings.numbers_batches
        require_compression(settings.compression)
        self._client, self._owns_client = async_client(source, security)
        self._settings = settings
        self._serializer = RecordSerializer(key_serializer, value_serializer)
        self._producer_id: asyncio.Future[ProducerIdentity] | None = None
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._partitioners: defaultdict[str, StickyPartitioner] = defaultdict(
            lambda: StickyPartitioner(random)
        )
        self._counts = PartitionCountCache(self._client, settings.metadata_max_age_s)
        self._unacknowledged = 0
        self._room = asyncio.Condition()

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Add a record to a batch; the future gets its offset, or the error of its batch.

        Waits only while the buffer is full, and for the first metadata of a topic.
        Records of one partition are appended in the order of the calls.

        Raises:
            UnknownTopic, UnknownPartition: the topic or partition does not exist.
            SerializationFailed: the key or the value cannot be serialized.

        """
        record = self._serializer.record(topic, value, key, headers, timestamp)
        loop = self._loop
        if loop is None:  # Asking for it costs a system call for each record.
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[RecordMetadata] = loop.create_future()
        await self.add(topic, partition, record, estimated_size(record), future)
        return future

    async def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        keys: Iterable[K | None] | None = None,
        partition: int | None = None,
    ) -> AsyncSentRecords:
        """Add records to batches as `send` does with each, in a fraction of its time.

        `keys` has one key for each value. Waits while the buffer is full; other records may then be
        sent in between. A call that is cancelled may have sent the first records.

        Raises:
            UnknownTopic, UnknownPartition: the topic or partition does not exist.
            SerializationFailed: a key or a value cannot be serialized.
            InvalidRequest: there are not as many keys as values.

        After an error nothing was sent.

        """
        records = self._serializer.records(topic, values, keys)
        sent = AsyncSentRecords(len(records))
        await self.add_many(topic, partition, records, sent.run)
        return sent

    async def add_many(
        self,
        topic: str,
        partition: int | None,
        records: Sequence[OutgoingRecord],
        sent_run: Callable[[Sequence[int]], SentRun],
    ) -> None:
        """Add records as `send_many` does.

        `sent_run` returns what waits for the acknowledgement of those at some indexes.
        """
        count = await self.partition_count(topic, partition)
        sizes = [estimated_size(record) for record in records]
        for chunk in chunks_of(sizes, self._settings.batch_bytes // _RUNS_PER_BATCH):
            await self._take_room(sum(sizes[index] for index in chunk))
            runs = (
                self._partitioners[topic].runs(records, chunk, count)
                if partition is None
                else {partition: chunk}
            )
            for number, run in runs.items():
                part = [records[index] for index in run]
                size = sum(sizes[index] for index in run)
                queue = self._queue_of(topic, number)
                now_s = time.monotonic()
                opened = queue.accumulator.add_run(part, size, sent_run(run), now_s)
                if opened and partition is None:
                    self._partitioners[topic].batch_closed(number, count)
                self._start_sender(queue, now_s)
            await asyncio.sleep(0)  # Full batches are sent while the next ones are filled.

    async def add(
        self,
        topic: str,
        partition: int | None,
        record: OutgoingRecord,
        size: int,
        future: Acknowledgement,
    ) -> None:
        """Add a record of an `estimated_size` as `send` does; complete the caller's own future."""
        now_s = time.monotonic()
        count = self._counts.known(topic, partition, now_s)
        if count is None:
            count = await self._counts.ask(topic, partition)
        if self._unacknowledged + size > self._settings.buffer_bytes:
            await self._wait_for_room(size)
            now_s = time.monotonic()
        self._unacknowledged += size
        partitioner = self._partitioners[topic]
        number = partitioner.choose(record.key, count) if partition is None else partition
        queue = self._queue_of(topic, number)
        opened = queue.accumulator.add(record, size, future, now_s)
        if opened and partition is None and record.key is None:
            partitioner.batch_closed(number, count)
        self._start_sender(queue, now_s)

    async def add_encoded(
        self, place: TopicPartition, batch: EncodedBatch, future: Acknowledgement
    ) -> None:
        """Add a batch of a caller who encodes records; the future gets its first offset.

        It is sent after the records that were added before, with sequence numbers and retries like
        theirs. It waits for room, and raises, as `send` does.
        """
        await self.partition_count(*place)
        await self._take_room(len(batch.data))
        now_s = time.monotonic()
        queue = self._queue_of(*place)
        queue.accumulator.add_encoded(batch, future, now_s)
        self._start_sender(queue, now_s)

    async def partition_count(self, topic: str, partition: int | None = None) -> int:
        """Return how many partitions a topic has.

        Raises:
            UnknownTopic, UnknownPartition: the topic or `partition` does not exist.

        """
        count = self._counts.known(topic, partition, time.monotonic())
        return await self._counts.ask(topic, partition) if count is None else count

    async def flush(self) -> None:
        """Wait until all records sent so far are acknowledged or have failed."""
        for queue in self._queues.values():
            if queue.accumulator:
                queue.accumulator.flush()
                queue.wake.set()
        accumulators = [queue.accumulator for queue in self._queues.values()]
        goals = [(accumulator, accumulator.added) for accumulator in accumulators]
        async with self._room:
            await self._room.wait_for(
                lambda: all(accumulator.completed >= goal for accumulator, goal in goals)
            )

    async def aclose(self) -> None:
        """Flush and close the producer, and a client of its own."""
        await self.flush()
        await self._counts.aclose()
        if self._producer_id is not None:
            self._producer_id.cancel()
        await self._close_client()

    async def abort(self) -> None:
        """Close at once and cancel unacknowledged records, whose outcome is then unknown."""
        await self._counts.aclose()
        queues = list(self._queues.values())
        senders = [queue.sender for queue in queues if queue.sender is not None]
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        for accumulator in [queue.accumulator for queue in queues]:
            while accumulator:
                batch = accumulator.take()
                cancel(batch)
                await self._complete(accumulator, batch)
        await self._close_client()

    async def _close_client(self) -> None:
        if self._owns_client:
            await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.aclose()
        else:
            await self.abort()

    async def _take_room(self, size: int) -> None:
        """Count bytes as unacknowledged, once the buffer has room for them."""
        if self._unacknowledged + size > self._settings.buffer_bytes:
            await self._wait_for_room(size)
        self._unacknowledged += size

    async def _wait_for_room(self, size: int) -> None:
        limit = self._settings.buffer_bytes
        async with self._room:
            await self._room.wait_for(
                lambda: not self._unacknowledged or self._unacknowledged + size <= limit
            )

    async def _complete(self, accumulator: Accumulator, batch: Batch) -> None:
        """Count a batch whose futures are done; wake callers that wait for it or for room."""
        async with self._room:
            self._unacknowledged -= batch.size
            accumulator.completed += batch.count
            self._room.notify_all()

    def _queue_of(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            settings = self._settings
            accumulator: Accumulator = RecordAccumulator(
                batch_bytes=settings.batch_bytes, linger_s=settings.linger_ms / 1000
            )
            queue = PartitionQueue(TopicPartition(topic, partition), accumulator)
            self._queues[topic, partition] = queue
        return queue

    def _start_sender(self, queue: PartitionQueue, now_s: float) -> None:
        """Start a task that sends the accumulated batches, or wake it if a batch is ready."""
        if queue.sender is not None:
            if queue.accumulator.due_in(now_s) <= 0:
                queue.wake.set()
            return
        sender = asyncio.create_task(self._send_all(queue))
        queue.sender = sender
        sender.add_done_callback(queue.sender_ended)

    async def _send_all(self, queue: PartitionQueue) -> None:
        """Send batches until the accumulator is empty."""
        accumulator = queue.accumulator
        while accumulator:
            await queue.linger()
            batch = accumulator.take()
            try:
                await self._deliver(queue.topic_partition, accumulator, batch)
            finally:
                await self._complete(accumulator, batch)
        # No await comes between the last check of the accumulator and this, so a record that is
        # added later starts a new sender.
        queue.sender = None

    async def _deliver(
        self, topic_partition: TopicPartition, accumulator: Accumulator, batch: Batch
    ) -> None:
        """Append a batch, or its halves if it is too large for the topic; complete its futures."""
        waiting = [batch]
        while waiting:
            part = waiting.pop()
            try:
                result = await self._append(topic_partition, accumulator, part)
            except Exception as error:
                if isinstance(error, BodyTooLarge) and (halves := part.halves(halves_of)):
                    accumulator.shrink(part.size)
                    waiting.extend(reversed(halves))
                    continue
                # Any error goes to these futures; what follows is sent all the same.
                if not isinstance(error, LeadlineError) or needs_new_producer_id(error):
                    accumulator.reset_producer_id()
                fail(part, error)
            except asyncio.CancelledError:
                # The records may be in the log. With the same sequence numbers, the broker would
                # take the next ones for duplicates of them.
                accumulator.reset_producer_id()
                for one in (part, *waiting):
                    cancel(one)
                raise
            else:
                if accumulator.sequence is not None:
                    accumulator.sequence.advance(part.count)
                acknowledge(part, topic_partition, result.base_offset)

    async def _append(
        self, topic_partition: TopicPartition, accumulator: Accumulator, batch: Batch
    ) -> ProduceResult:
        sequence = await self._sequence(accumulator)
        encoded = batch.encode(
            sequence, now_ms=time.time_ns() // 1_000_000, compression=self._settings.compression
        )
        return await self._client.produce_batches(
            *topic_partition,
            encoded,
            acks=self._settings.acks,
            idempotent=sequence is not None,
            timeout_s=self._settings.delivery_timeout_s,
        )

    async def _sequence(self, accumulator: Accumulator) -> ProducerSequence | None:
        if self._idempotent and accumulator.sequence is None:
            try:
                own = accumulator.needs_own_producer_id
                allocated = self._client.new_producer_id() if own else self._shared_producer_id()
                accumulator.sequence = ProducerSequence(await allocated)
            except ClusterChanged:
                raise
            except LeadlineError as error:
                # Even if the outcome of that request is unknown, the batch was not sent.
                raise Unreachable(f"could not allocate a producer id: {error}") from error
        return accumulator.sequence

    async def _shared_producer_id(self) -> ProducerIdentity:
        """Return the producer id that all accumulators begin with; allocate it once."""
        if self._producer_id is None or (
            self._producer_id.done() and self._producer_id.exception()
        ):
            self._producer_id = asyncio.ensure_future(self._client.new_producer_id())
        return await asyncio.shield(self._producer_id)
