"""A task's records on their way: gathered by partition, sent in batches, a few at a time.

Each partition has a lane. What is in a lane is encoded and sent when it fills a batch; all lanes
together hold no more than a budget. A lane has one request under way, so that the records of a
partition stay in order; several lanes have theirs side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import pyarrow.compute as pc

from leadline_spark.codec.encode import Records, concat
from leadline_spark.read.offsets import TopicPartition

_SIDE_BY_SIDE = 4


class PartitionWriter(Protocol):
    """Where the batches of one partition go, one after the other."""

    def encode(self, records: Records) -> bytes:
        """Return the next batch; called in the order of the records."""

    def send(self, batch: bytes) -> None:
        """Deliver a batch, or raise. Called by another thread, never twice at a time."""


@dataclass(slots=True)
class _Lane:
    outlet: PartitionWriter
    pieces: list[Records] = field(default_factory=list)
    filled: int = 0
    under_way: Future[None] | None = None


class Lanes:
    """The lanes of one task; a context manager, whose end waits for what is under way."""

    def __init__(
        self,
        outlet_of: Callable[[TopicPartition], PartitionWriter],
        *,
        batch_bytes: int,
        buffer_bytes: int,
    ) -> None:
        self._outlet_of = outlet_of
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._filled = 0
        self._pool = ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="leadline-lane")

    def add(self, place: TopicPartition, records: Records) -> None:
        """Take records; sends what makes full batches, and raises what sending raised."""
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(self._outlet_of(place))
        size = pc.sum(records.sizes()).as_py()
        lane.pieces.append(records)
        self._count(lane, size)
        if lane.filled >= self._batch_bytes:
            self._empty(lane, keep_rest=True)
        while self._filled > self._buffer_bytes:
            self._empty(max(self._lanes.values(), key=lambda one: one.filled), keep_rest=False)

    def finish(self) -> None:
        """Send everything, and return when all of it was delivered."""
        for lane in self._lanes.values():
            self._empty(lane, keep_rest=False)
        for lane in self._lanes.values():
            _settle(lane)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _count(self, lane: _Lane, size: int) -> None:
        lane.filled += size
        self._filled += size

    def _empty(self, lane: _Lane, *, keep_rest: bool) -> None:
        """Send what is in a lane; `keep_rest` leaves what does not fill a batch."""
        if not lane.pieces:
            return
        batches = list(concat(lane.pieces).split(self._batch_bytes))
        rest = batches.pop() if keep_rest and len(batches) > 1 else None
        self._count(lane, -lane.filled)
        lane.pieces = [] if rest is None else [rest]
        if rest is not None:
            self._count(lane, pc.sum(rest.sizes()).as_py())
        for batch in batches:
            self._send(lane, batch)

    def _send(self, lane: _Lane, records: Records) -> None:
        batch = lane.outlet.encode(records)
        _settle(lane)
        self._make_room()
        lane.under_way = self._pool.submit(lane.outlet.send, batch)

    def _make_room(self) -> None:
        """Wait until fewer requests are under way than threads: batches take memory."""
        under_way = [one.under_way for one in self._lanes.values() if one.under_way is not None]
        pending = [future for future in under_way if not future.done()]
        if len(pending) >= _SIDE_BY_SIDE:
            wait(pending, return_when=FIRST_COMPLETED)


def _settle(lane: _Lane) -> None:
    """Wait for the request of a lane, and raise what it raised."""
    if lane.under_way is not None:
        lane.under_way.result()
        lane.under_way = None
