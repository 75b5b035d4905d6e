"""A task's records on their way: gathered by partition, sent in batches, a few at a time.

Each partition has a buffer. What is in a buffer is encoded and sent when it fills a batch; all buffers
together hold no more than a budget. A buffer has one request under way, so that the records of a
partition stay in order; several buffers have theirs side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import pyarrow.compute as pc

from leadline_client.wire import TopicPartition
from leadline_spark.codec.encode import Records, concat

_SIDE_BY_SIDE = 4


class PartitionWriter(Protocol):
    """Where the batches of one partition go, one after the other."""

    def encode(self, records: Records) -> bytes:
        """Return the next batch; called in the order of the records."""

    def send(self, batch: bytes) -> None:
        """Deliver a batch, or raise. Called by another thread, never twice at a time."""


@dataclass(slots=True)
class _PartitionBuffer:
    writer: PartitionWriter
    pieces: list[Records] = field(default_factory=list)
    filled: int = 0
    under_way: Future[None] | None = None


class PartitionBuffers:
    """The buffers of one task; a context manager, whose end waits for what is under way."""

    def __init__(
        self,
        writer_of: Callable[[TopicPartition], PartitionWriter],
        *,
        batch_bytes: int,
        buffer_bytes: int,
    ) -> None:
        self._outlet_of = writer_of
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._buffers: dict[TopicPartition, _PartitionBuffer] = {}
        self._filled = 0
        self._pool = ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="leadline-buffer")

    def add(self, topic_partition: TopicPartition, records: Records) -> None:
        """Take records; sends what makes full batches, and raises what sending raised."""
        buffer = self._buffers.get(topic_partition)
        if buffer is None:
            buffer = self._buffers[topic_partition] = _PartitionBuffer(
                self._outlet_of(topic_partition)
            )
        size = pc.sum(records.sizes()).as_py()
        buffer.pieces.append(records)
        self._count(buffer, size)
        if buffer.filled >= self._batch_bytes:
            self._empty(buffer, keep_rest=True)
        while self._filled > self._buffer_bytes:
            self._empty(max(self._buffers.values(), key=lambda one: one.filled), keep_rest=False)

    def finish(self) -> None:
        """Send everything, and return when all of it was delivered."""
        for buffer in self._buffers.values():
            self._empty(buffer, keep_rest=False)
        for buffer in self._buffers.values():
            _settle(buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _count(self, buffer: _PartitionBuffer, size: int) -> None:
        buffer.filled += size
        self._filled += size

    def _empty(self, buffer: _PartitionBuffer, *, keep_rest: bool) -> None:
        """Send what is in a buffer; `keep_rest` leaves what does not fill a batch."""
        if not buffer.pieces:
            return
        batches = list(concat(buffer.pieces).split(self._batch_bytes))
        rest = batches.pop() if keep_rest and len(batches) > 1 else None
        self._count(buffer, -buffer.filled)
        buffer.pieces = [] if rest is None else [rest]
        if rest is not None:
            self._count(buffer, pc.sum(rest.sizes()).as_py())
        for batch in batches:
            self._send(buffer, batch)

    def _send(self, buffer: _PartitionBuffer, records: Records) -> None:
        batch = buffer.writer.encode(records)
        _settle(buffer)
        self._make_room()
        buffer.under_way = self._pool.submit(buffer.writer.send, batch)

    def _make_room(self) -> None:
        """Wait until fewer requests are under way than threads: batches take memory."""
        under_way = [one.under_way for one in self._buffers.values() if one.under_way is not None]
        pending = [future for future in under_way if not future.done()]
        if len(pending) >= _SIDE_BY_SIDE:
            wait(pending, return_when=FIRST_COMPLETED)


def _settle(buffer: _PartitionBuffer) -> None:
    """Wait for the request of a buffer, and raise what it raised."""
    if buffer.under_way is not None:
        buffer.under_way.result()
        buffer.under_way = None
