"""The records that a task has not sent yet: collected by partition, and sent in batches.

A buffer is encoded and sent when it fills a batch. All buffers together hold no more than a limit.
A partition has one request in flight, which keeps its records in order; several partitions have
theirs at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol, Self

import pyarrow.compute as pc

from leadline_client.columnar.encode import Records, concat
from leadline_client.wire import TopicPartition

_MAX_IN_FLIGHT = 4


class PartitionWriter(Protocol):
    """Writes the batches of one partition, one after the other."""

    def encode(self, records: Records) -> bytes:
        """Return the next batch. Called in the order of the records."""

    def send(self, batch: bytes) -> None:
        """Deliver a batch, or raise. Called by another thread, by one at a time."""


@dataclass(slots=True)
class _WriteBuffer:
    writer: PartitionWriter
    pieces: list[Records] = field(default_factory=list)
    size: int = 0
    in_flight: Future[None] | None = None

    def wait(self) -> None:
        """Wait for the request in flight, and raise what it raised."""
        if self.in_flight is not None:
            self.in_flight.result()
            self.in_flight = None


class PartitionBuffers:
    """The buffers of one task. At the end of its context, waits for the requests in flight.

    Sizes are in bytes.
    """

    def __init__(
        self,
        writer_of: Callable[[TopicPartition], PartitionWriter],
        *,
        batch_bytes: int,
        buffer_bytes: int,
    ) -> None:
        self._writer_of = writer_of
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._buffers: dict[TopicPartition, _WriteBuffer] = {}
        self._size = 0
        self._pool = ThreadPoolExecutor(_MAX_IN_FLIGHT, thread_name_prefix="leadline-write")

    def add(self, topic_partition: TopicPartition, records: Records) -> None:
        """Add records, and send full batches. Raises what an earlier `send` raised."""
        buffer = self._buffers.get(topic_partition)
        if buffer is None:
            buffer = _WriteBuffer(self._writer_of(topic_partition))
            self._buffers[topic_partition] = buffer
        buffer.pieces.append(records)
        self._grow(buffer, pc.sum(records.sizes()).as_py())
        if buffer.size >= self._batch_bytes:
            self._flush(buffer, keep_rest=True)
        while self._size > self._buffer_bytes:
            largest = max(self._buffers.values(), key=lambda buffer: buffer.size)
            self._flush(largest, keep_rest=False)

    def finish(self) -> None:
        """Send everything, and return when all of it is delivered."""
        for buffer in self._buffers.values():
            self._flush(buffer, keep_rest=False)
        for buffer in self._buffers.values():
            buffer.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _grow(self, buffer: _WriteBuffer, size: int) -> None:
        buffer.size += size
        self._size += size

    def _flush(self, buffer: _WriteBuffer, *, keep_rest: bool) -> None:
        """Send the content of a buffer; `keep_rest` keeps what does not fill a batch."""
        if not buffer.pieces:
            return
        batches = list(concat(buffer.pieces).split(self._batch_bytes))
        rest = batches.pop() if keep_rest and len(batches) > 1 else None
        self._grow(buffer, -buffer.size)
        buffer.pieces = [] if rest is None else [rest]
        if rest is not None:
            self._grow(buffer, pc.sum(rest.sizes()).as_py())
        for batch in batches:
            self._send(buffer, batch)

    def _send(self, buffer: _WriteBuffer, records: Records) -> None:
        batch = buffer.writer.encode(records)
        buffer.wait()
        self._wait_for_thread()
        buffer.in_flight = self._pool.submit(buffer.writer.send, batch)

    def _wait_for_thread(self) -> None:
        """Wait until a thread is free: batches that wait in the pool's queue take memory."""
        in_flight = [one.in_flight for one in self._buffers.values() if one.in_flight is not None]
        pending = [future for future in in_flight if not future.done()]
        if len(pending) >= _MAX_IN_FLIGHT:
            wait(pending, return_when=FIRST_COMPLETED)
