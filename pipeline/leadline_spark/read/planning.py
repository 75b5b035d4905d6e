"""Ranges of offsets, and how they are split into tasks. Pure.

The result depends on the ranges and options alone, never on the present state of the cluster: Spark
plans an interrupted batch again from its checkpoint, and expects the same tasks.
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
        """The number of offsets; there may be fewer records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


def split(
    ranges: Sequence[Range], min_partitions: int | None = None, max_records: int | None = None
) -> list[Range]:
    """Return the non-empty ranges, in pieces of at most `max_records` offsets.

    The largest pieces are split further until there are `min_partitions`, as long as there are
    offsets for them. The pieces of a range differ in size by at most one, and stay in order.
    """
    filled = sorted((one for one in ranges if one.size > 0), key=lambda one: one.topic_partition)
    pieces = [-(-one.size // max_records) if max_records else 1 for one in filled]
    missing = (min_partitions or 0) - sum(pieces)
    # The largest pieces come first, and the first of equal ones, so the order is always the same.
    sizes = zip(filled, pieces, strict=True)
    heap = [(-one.size / count, index) for index, (one, count) in enumerate(sizes)]
    heapq.heapify(heap)
    while missing > 0 and heap:
        _, index = heapq.heappop(heap)
        if pieces[index] < filled[index].size:
            pieces[index] += 1
            missing -= 1
            heapq.heappush(heap, (-filled[index].size / pieces[index], index))
    return [
        piece
        for one, count in zip(filled, pieces, strict=True)
        for piece in _split_evenly(one, count)
    ]


def _split_evenly(whole: Range, count: int) -> list[Range]:
    bounds = [whole.start + whole.size * step // count for step in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in itertools.pairwise(bounds)]
