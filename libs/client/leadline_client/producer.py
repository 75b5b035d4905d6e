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

from leadline_client.accumulator import RecordAccumulator, chunks_of, estimated_size
from leadline_client.batch_sender import BatchSender
from leadline_client.batch_window import BatchWindow
from leadline_client.client import AsyncSource, async_client
from leadline_client.codec import require_compression
from leadline_client.errors import InvalidRequest
from leadline_client.partition_queue import (
    Accumulator,
    Acknowledgement,
    PartitionQueue,
    Window,
    cancel,
)
from leadline_client.partitioner import PartitionCountCache, StickyPartitioner
from leadline_client.payloads import EncodedBatch, OutgoingRecord
from leadline_client.producer_settings import DEFAULTS, ProducerSettings
from leadline_client.record_future import RecordFuture, SharedOutcome
from leadline_client.security import Security
from leadline_client.sent_records import AsyncSentRecords, SentRun
from leadline_client.serializers.protocols import Serializer
from leadline_client.serializers.records import RecordSerializer
from leadline_client.type_parameters import K, V
from leadline_client.wire import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


_RUNS_PER_BATCH: Final = 16
"""Records that are sent together stay together: a batch is full when the next ones do not fit."""


class AsyncProducer(Generic[K, V]):
    """A producer on the running event loop, with up to `max_in_flight` batches per partition.

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
        self._in_flight = settings.batches_in_flight
        require_compression(settings.compression)
        self._client, self._owns_client = async_client(source, security)
        self._settings = settings
        self._sender = BatchSender(client=self._client, settings=settings, on_done=self._release)
        self._serializer = RecordSerializer(key_serializer, value_serializer)
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._partitioners: defaultdict[str, StickyPartitioner] = defaultdict(
            lambda: StickyPartitioner(random)
        )
        self._counts = PartitionCountCache(self._client, settings.metadata_max_age_s)
        self._unacknowledged = 0
        self._room = asyncio.Condition()
        self._closings = 0

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> RecordFuture:
        """Add a record to a batch; the future gets its offset, or the error of its batch.

        Waits only while the buffer is full, and for the first metadata of a topic.
        Records of one partition are appended in the order of the calls.

        Raises:
            UnknownTopic, UnknownPartition: the topic or partition does not exist.
            SerializationFailed: the key or the value cannot be serialized.
            InvalidRequest: no record can have such a header or time, or the producer is closed, or
                was while this waited.

        """
        record = self._serializer.record(topic, value, key, headers, timestamp)
        size = estimated_size(record)
        count = await self._admit(topic, partition, size)
        queue = self._queue_for(topic, partition, record.key, count)
        shared = queue.shared
        if shared is None or not queue.accumulator.extend(shared, record, size):
            shared = queue.shared = SharedOutcome(asyncio.get_running_loop())
            self._append(queue, record, size, shared, partition, count)
        elif queue.sender is None:  # An error has ended it while records waited.
            self._start_sender(queue, time.monotonic())
        return shared.add()

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
            InvalidRequest: there are not as many keys as values, or the producer is closed. The
                first records may have been sent if it was closed while this waited.

        After any other error nothing was sent.

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
        closings = self._closings
        count = await self.partition_count(topic, partition)
        self._check_not_closed(closings)
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
        count = await self._admit(topic, partition, size)
        queue = self._queue_for(topic, partition, record.key, count)
        self._append(queue, record, size, future, partition, count)

    async def add_encoded(
        self, place: TopicPartition, batch: EncodedBatch, future: Acknowledgement
    ) -> None:
        """Add a batch of a caller who encodes records; the future gets its first offset.

        It is sent after the records that were added before, with sequence numbers and retries like
        theirs. It waits for room, and raises, as `send` does.
        """
        await self._admit(*place, len(batch.data))
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
        goals = [(queue, queue.accumulator.added) for queue in self._queues.values()]
        async with self._room:
            await self._room.wait_for(
                lambda: all(queue.has_completed(goal) for queue, goal in goals)
            )

    async def aclose(self) -> None:
        """Flush and close the producer, and a client of its own; refuse records that wait.

        If it is cancelled, it closes as `abort` does.
        """
        self._counts.close()
        try:
            await self._refuse_waiting()
            await self.flush()
            await self._counts.aclose()
            self._sender.close()
            await self._close_client()
        except asyncio.CancelledError:
            await self.abort()
            raise

    async def abort(self) -> None:
        """Close at once and cancel unacknowledged records, whose outcome is then unknown.

        Records that wait for room are refused.
        """
        self._sender.close()
        queues = list(self._queues.values())
        senders = [queue.sender for queue in queues if queue.sender is not None]
        for sender in senders:
            sender.cancel()
        # No await comes before this: if it was cancelled, nothing would complete these futures.
        for accumulator in [queue.accumulator for queue in queues]:
            while accumulator:
                batch = accumulator.take()
                cancel(batch)
                self._unacknowledged -= batch.size
        await self._refuse_waiting()
        await self._counts.aclose()
        await asyncio.gather(*senders, return_exceptions=True)
        await self._close_client()

    async def _close_client(self) -> None:
        if self._owns_client:
            await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._counts.close()
        if kind is None:
            await self.aclose()
        else:
            await self.abort()

    async def _admit(self, topic: str, partition: int | None, size: int) -> int:
        """Count bytes as unacknowledged, once there is room; return the topic's partition count.

        Raises:
            UnknownTopic, UnknownPartition: the topic or `partition` does not exist.

        """
        # One coroutine for both, because it is called for each record.
        count = self._counts.known(topic, partition, time.monotonic())
        if count is None:
            closings = self._closings
            count = await self._counts.ask(topic, partition)
            self._check_not_closed(closings)
        if self._unacknowledged + size > self._settings.buffer_bytes:
            await self._wait_for_room(size)
        self._unacknowledged += size
        return count

    async def _take_room(self, size: int) -> None:
        """Count bytes as unacknowledged, once the buffer has room for them."""
        if self._unacknowledged + size > self._settings.buffer_bytes:
            await self._wait_for_room(size)
        self._unacknowledged += size

    async def _wait_for_room(self, size: int) -> None:
        limit, closings = self._settings.buffer_bytes, self._closings
        async with self._room:
            await self._room.wait_for(
                lambda: (
                    closings != self._closings
                    or not self._unacknowledged
                    or self._unacknowledged + size <= limit
                )
            )
        self._check_not_closed(closings)

    def _check_not_closed(self, closings: int) -> None:
        """Refuse what has waited since there were so many closings: nobody would flush it."""
        if closings != self._closings:
            raise InvalidRequest("the producer was closed before it could take the record")

    async def _refuse_waiting(self) -> None:
        """Refuse what waits for room or metadata: it would be sent by a producer that is closed."""
        self._closings += 1
        async with self._room:
            self._room.notify_all()

    async def _release(self, size: int) -> None:
        """Count bytes whose futures are done; wake callers that wait for them or for room."""
        async with self._room:
            self._unacknowledged -= size
            self._room.notify_all()

    def _queue_for(
        self, topic: str, partition: int | None, key: bytes | None, count: int
    ) -> PartitionQueue:
        """Return the queue of the partition that a record goes to."""
        if partition is None:
            partition = self._partitioners[topic].choose(key, count)
        return self._queue_of(topic, partition)

    def _queue_of(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            settings = self._settings
            accumulator: Accumulator = RecordAccumulator(
                batch_bytes=settings.batch_bytes, linger_s=settings.linger_ms / 1000
            )
            window: Window = BatchWindow(self._in_flight)
            queue = PartitionQueue(TopicPartition(topic, partition), accumulator, window)
            self._queues[topic, partition] = queue
        return queue

    def _append(
        self,
        queue: PartitionQueue,
        record: OutgoingRecord,
        size: int,
        token: Acknowledgement,
        partition: int | None,
        count: int,
    ) -> None:
        """Add a record to the last batch, or to a new one.

        `partition` is None if it was chosen for the record, from so many.
        """
        now_s = time.monotonic()
        opened = queue.accumulator.add(record, size, token, now_s)
        if opened and partition is None and record.key is None:
            place = queue.topic_partition
            self._partitioners[place.topic].batch_closed(place.partition, count)
        self._start_sender(queue, now_s)

    def _start_sender(self, queue: PartitionQueue, now_s: float) -> None:
        """Start a task that sends the accumulated batches, or wake it if a batch is ready."""
        if queue.sender is not None:
            if queue.ready_in(now_s) == 0:
                queue.wake.set()
            return
        sender = asyncio.create_task(self._sender.send_all(queue))
        queue.sender = sender
        sender.add_done_callback(queue.sender_ended)
