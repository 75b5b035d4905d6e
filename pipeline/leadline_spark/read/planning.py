"""Which ranges of offsets become tasks. Pure, and a function of the ranges and options alone.

Spark plans a batch that was cut short once more from its checkpoint and expects the same tasks: so
nothing here may depend on what the cluster looks like at the moment.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from leadline_client.wire import TopicPartition
from leadline_spark.read.offsets import UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of a partition of the topic with this id.

    `end_epoch` is the leader epoch in which everything before `end` was known to be committed.
    """

    topic_partition: TopicPartition
    topic_id: str
    start: int
    end: int
    end_epoch: int = UNKNOWN_EPOCH

    @property
    def size(self) -> int:
        """How many offsets it holds; there may be fewer records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


def split(
    ranges: Sequence[Range], min_partitions: int | None = None, max_records: int | None = None
) -> list[Range]:
    """Return the ranges that hold anything, cut so that no piece is larger than `max_records`.

    Then the largest are cut further until there are `min_partitions` pieces, as far as there are
    offsets for them. Pieces of a range are of one size, give or take one, and stay in order.
    """
    filled = sorted((one for one in ranges if one.size > 0), key=lambda one: one.topic_partition)
    pieces = [-(-one.size // max_records) if max_records else 1 for one in filled]
    missing = (min_partitions or 0) - sum(pieces)
    # The largest pieces first; of equal ones the first, so that the order is always the same.
    heap = [(-one.size / count, index) for index, (one, count) in _counted(filled, pieces)]
    heapq.heapify(heap)
    while missing > 0 and heap:
        _, index = heapq.heappop(heap)
        if pieces[index] < filled[index].size:
            pieces[index] += 1
            missing -= 1
            heapq.heappush(heap, (-filled[index].size / pieces[index], index))
    return [piece for _, (one, count) in _counted(filled, pieces) for piece in _cut(one, count)]


def _counted(ranges: Sequence[Range], pieces: Sequence[int]) -> list[tuple[int, tuple[Range, int]]]:
    return list(enumerate(zip(ranges, pieces, strict=True)))


def _cut(one: Range, count: int) -> list[Range]:
    bounds = [one.start + one.size * step // count for step in range(count + 1)]
    return [replace(one, start=start, end=end) for start, end in itertools.pairwise(bounds)]
