"""The blocking producer, for code without an event loop.

An `AsyncProducer` runs on a thread of its own. `send` only appends the record to a list, and that
thread takes all records of the list at once: a stream of records must not pay for a change of
threads with each record.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Generic, NamedTuple, Self

from leadline_client.accumulator import estimated_size
from leadline_client.client import AsyncClient, BlockingSource, async_client_of
from leadline_client.errors import InvalidRequest
from leadline_client.event_loop_thread import EventLoopThread
from leadline_client.payloads import EncodedBatch, OutgoingRecord
from leadline_client.producer import AsyncProducer, Headers
from leadline_client.producer_settings import DEFAULTS, ProducerSettings
from leadline_client.security import Security
from leadline_client.sent_records import RecordMetadata, SentRecords
from leadline_client.serializers.protocols import Serializer
from leadline_client.serializers.records import RecordSerializer
from leadline_client.type_parameters import K, V
from leadline_client.wire import TopicPartition


class SentRecord(NamedTuple):
    """A record on its way to the producer's thread; `size` in bytes."""

    topic: str
    partition: int | None
    record: OutgoingRecord
    size: int
    future: Future[RecordMetadata]


class SentBatch(NamedTuple):
    """An encoded batch on its way to the producer's thread; `size` in bytes."""

    place: TopicPartition
    batch: EncodedBatch
    size: int
    future: Future[RecordMetadata]


class SendQueue:
    """Records that any thread adds and the producer's thread takes, all at once.

    `limit`: how many bytes of records may be unacknowledged. `wake` is called in the adding thread
    for the first record after a `take`, with false; and with true when the records should be taken
    at once, because `batch_bytes` have been added since the last call, or `add` waits for room.
    """

    def __init__(self, *, limit: int, batch_bytes: int, wake: Callable[[bool], None]) -> None:
        self._limit = limit
        self._batch_bytes = batch_bytes
        self._wake = wake
        self._changed = threading.Condition()
        self._records: list[SentRecord | SentBatch] = []
        self._unacknowledged = 0
        self._since_wake = 0
        self._closed = False

    def add(self, sent: SentRecord | SentBatch) -> None:
        """Add one; wait while there is no room. Raises InvalidRequest once closed."""
        with self._changed:
            if not self._may_add(sent.size):
                self._wake(True)
                self._changed.wait_for(lambda: self._may_add(sent.size))
            self.check_open()
            self._unacknowledged += sent.size
            self._since_wake += sent.size
            self._records.append(sent)
            full = self._since_wake >= self._batch_bytes
            if full:
                self._since_wake = 0
            if full or len(self._records) == 1:
                self._wake(full)

    def take(self) -> list[SentRecord | SentBatch]:
        """Remove and return all records."""
        with self._changed:
            taken, self._records = self._records, []
            self._since_wake = 0
            return taken

    def acknowledge(self, size: int) -> None:
        """Give room for records again after one was acknowledged or has failed."""
        with self._changed:
            self._unacknowledged -= size
            self._changed.notify_all()

    def check_open(self) -> None:
        """Raise InvalidRequest once closed."""
        if self._closed:
            raise InvalidRequest("the producer is closed")

    def close(self) -> bool:
        """Refuse further records; return whether it was open."""
        with self._changed:
            was_open, self._closed = not self._closed, True
            self._changed.notify_all()
            return was_open

    def _may_add(self, size: int) -> bool:
        used = self._unacknowledged
        return self._closed or not used or used + size <= self._limit


class Producer(Generic[K, V]):
    """A producer for code without an event loop; any threads may share it, but no forked child.

    `source` is a client, or the addresses of brokers with their `security`. Of a client it uses
    the addresses, the retry policy and the security; its connections are its own. Serializers make
    bytes of keys and values, on the thread that sends; without them, both are bytes.

    with Producer("http://127.0.0.1:8081") as producer:
        metadata = producer.send("lines", b"hello").result()
    """

    def __init__(
        self,
        source: BlockingSource,
        settings: ProducerSettings = DEFAULTS,
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        security: Security | None = None,
    ) -> None:
        self._serializer = RecordSerializer(key_serializer, value_serializer)
        self.settings = settings
        self._linger_s = settings.linger_ms / 1000
        self._queue = SendQueue(
            limit=settings.buffer_bytes, batch_bytes=settings.batch_bytes, wake=self._wake
        )
        self._counts: dict[str, int] = {}
        self._client = async_client_of(source, security)
        # The queue has waited for `linger_ms` already.
        self._producer: AsyncProducer = AsyncProducer(self._client, replace(settings, linger_ms=0))
        self._timer: asyncio.TimerHandle | None = None
        self._moving = asyncio.Lock()
        self._moves: set[asyncio.Task[None]] = set()
        self._thread = EventLoopThread("leadline-producer")
        # No record is lost: until it has an outcome, it refers to this producer.
        self._thread.end_with(self, partial(_close, self._producer, self._client))

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Future[RecordMetadata]:
        """Add a record to a batch; the future gets its offset, or the error of its batch.

        Blocks only while the buffer is full, and for the first metadata of a topic. Records that
        one thread sends to one partition are appended in that order. Callbacks of the future run
        on the producer's thread, and must not wait for it: neither for room nor for a `flush`.

        Raises:
            UnknownTopic, UnknownPartition: the topic or partition does not exist.
            InvalidRequest: the producer is closed, or no record can have such a header or time.
            SerializationFailed: the key or the value cannot be serialized.

        """
        self._check_open()
        record = self._serializer.record(topic, value, key, headers, timestamp)
        if not 0 <= (partition or 0) < self._counts.get(topic, 0):
            self.partition_count(topic, partition)
        size = estimated_size(record)
        future: Future[RecordMetadata] = Future()
        return self._enqueue(SentRecord(topic, partition, record, size, future))

    def send_encoded(self, place: TopicPartition, batch: EncodedBatch) -> Future[RecordMetadata]:
        """Send a batch of a caller who encodes records; the future gets its first offset.

        It goes through the same queue as the records of `send`, in order with them, and gets the
        producer's id and sequence numbers. Blocks only while the buffer is full.

        Raises:
            InvalidRequest: the producer is closed.

        """
        self._check_open()
        future: Future[RecordMetadata] = Future()
        return self._enqueue(SentBatch(place, batch, len(batch.data), future))

    @property
    def serializes(self) -> bool:
        """Whether keys or values go through a serializer."""
        return self._serializer.serializes

    def partition_count(self, topic: str, partition: int | None = None) -> int:
        """Return how many partitions a topic has, by the newest metadata of the producer.

        Raises:
            UnknownTopic, UnknownPartition: the topic or `partition` does not exist.
            InvalidRequest: the producer is closed.

        """
        self._check_open()
        count = self._thread.run(self._producer.partition_count(topic, partition))
        self._counts[topic] = count
        return count

    def _check_open(self) -> None:
        self._thread.require_own()
        self._queue.check_open()

    def _enqueue(self, sent: SentRecord | SentBatch) -> Future[RecordMetadata]:
        self._queue.add(sent)
        sent.future.add_done_callback(lambda _: self._queue.acknowledge(sent.size))
        return sent.future

    def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        keys: Iterable[K | None] | None = None,
        partition: int | None = None,
    ) -> SentRecords:
        """Add records to batches as `send` does with each, in a fraction of its time.

        `keys` has one key for each value. The records follow what this thread has sent before.
        Blocks while the buffer is full.

        Raises:
            UnknownTopic, UnknownPartition: the topic or partition does not exist.
            InvalidRequest: the producer is closed, or there are not as many keys as values.
            SerializationFailed: a key or a value cannot be serialized.

        After an error nothing was sent.

        """
        self._check_open()
        records = self._serializer.records(topic, values, keys)
        sent = SentRecords(len(records))
        self._thread.run(self._add_many(topic, partition, records, sent))
        return sent

    def flush(self) -> None:
        """Wait until all records sent so far are acknowledged or have failed."""
        self._thread.run(self._flush())

    def close(self) -> None:
        """Flush, and close the producer and its connections.

        A second call does nothing, nor does one in a forked child: the records are the parent's.
        If it is interrupted, it cancels the records whose outcome is not known.
        """
        if self._thread.is_left_behind or not self._queue.close():
            return
        try:
            self._thread.run(self._flush())
            self._thread.run(_close(self._producer, self._client))
        except BaseException:
            self._thread.run(self._abort())
            raise
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self, now: bool) -> None:
        self._thread.call_soon(lambda: self._schedule(now=now))

    # -- On the producer's thread -----------------------------------------------

    def _schedule(self, *, now: bool) -> None:
        """Move the records of the queue into batches after `linger_ms`, or now."""
        if now:
            self._start_move()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._linger_s, self._start_move)

    def _start_move(self) -> asyncio.Task[None]:
        """Move all records of the queue; the timer has nothing left to do then."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        move = asyncio.create_task(self._move())
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)
        return move

    async def _move(self) -> None:
        async with self._moving:
            taken = deque(self._queue.take())
            while taken:
                sent = taken.popleft()
                # From here on the record cannot be cancelled: it may be sent at any moment.
                if not sent.future.set_running_or_notify_cancel():
                    continue
                try:
                    await self._add(sent)
                except asyncio.CancelledError as cancelled:
                    sent.future.set_exception(cancelled)
                    _cancel(taken)
                    raise
                except Exception as error:
                    # Any error belongs to this record's future; the next record is sent.
                    sent.future.set_exception(error)

    async def _add_many(
        self,
        topic: str,
        partition: int | None,
        records: Sequence[OutgoingRecord],
        sent: SentRecords,
    ) -> None:
        await self._moved()
        await self._producer.add_many(topic, partition, records, sent.run)

    async def _add(self, sent: SentRecord | SentBatch) -> None:
        if isinstance(sent, SentBatch):
            await self._producer.add_encoded(sent.place, sent.batch, sent.future)
            return
        topic, partition, record, size, future = sent
        await self._producer.add(topic, partition, record, size, future)

    async def _flush(self) -> None:
        await self._moved()
        await self._producer.flush()

    async def _moved(self) -> None:
        """Wait until what was sent before is in batches.

        An interrupted caller does not end the move, which holds records that nothing else has.
        """
        await asyncio.shield(self._start_move())

    async def _abort(self) -> None:
        """Cancel all records that are not acknowledged, and close the connections."""
        _cancel(self._queue.take())
        moves = list(self._moves)
        for move in moves:
            move.cancel()
        await asyncio.gather(*moves, return_exceptions=True)
        await self._producer.abort()
        await self._client.aclose()


async def _close(producer: AsyncProducer, client: AsyncClient) -> None:
    await producer.aclose()
    await client.aclose()


def _cancel(records: Iterable[SentRecord | SentBatch]) -> None:
    for sent in records:
        sent.future.cancel()
