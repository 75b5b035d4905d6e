"""What one reader got of one partition, poll by poll, in columns.

Offsets that follow each other are one *run*. So what a reader got is a column of value
ids and a few runs, and everything that can be wrong with the order is where runs meet.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.checks.anomalies import TopicPartition

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Read:
    """What a final reader got of one partition: (offset, value) pairs in the order they came in.

    `source` names the reader or replica. A `complete` read reached the end of
    the partition; an incomplete one shows no losses. Retention may have removed what stood
    before `log_start`.
    """

    partition: TopicPartition
    records: Sequence[tuple[int, Hashable]]
    source: str = "reader"
    complete: bool = True
    log_start: int = 0


@dataclass(slots=True)
class Polls:
    """The polls of one reader from one partition."""

    source: str
    complete: bool = False
    log_start: int = 0
    ids: array[int] = field(default_factory=lambda: array("i"))
    run_starts: array[int] = field(default_factory=lambda: array("i"))
    run_offsets: array[int] = field(default_factory=lambda: array("q"))
    poll_starts: array[int] = field(default_factory=lambda: array("i"))
    poll_s: array[float] = field(default_factory=lambda: array("d"))
    fresh: set[int] = field(default_factory=set)
    """Polls that need not follow the one before: the reader was assigned again, or sought."""
    _due: int = -1
    _moved: bool = False

    def moved(self) -> None:
        """Note that the next poll may begin anywhere."""
        self._moved = True

    def begin(self, at_s: float) -> None:
        """Begin a poll; what is added next belongs to it."""
        if self._moved:
            self.fresh.add(len(self.poll_starts))
            self._moved = False
        self.poll_starts.append(len(self.ids))
        self.poll_s.append(at_s)

    def add_run(self, offset: int, ids: Iterable[int]) -> None:
        """Add records with consecutive offsets from `offset` on."""
        if offset != self._due:
            self.run_starts.append(len(self.ids))
            self.run_offsets.append(offset)
        before = len(self.ids)
        self.ids.extend(ids)
        self._due = offset + len(self.ids) - before

    def add(self, offsets: Iterable[int], ids: Iterable[int]) -> None:
        """Add records at any offsets."""
        due, column = self._due, self.ids
        for offset, value_id in zip(offsets, ids, strict=True):
            if offset != due:
                self.run_starts.append(len(column))
                self.run_offsets.append(offset)
            column.append(value_id)
            due = offset + 1
        self._due = due

    def runs(self) -> Iterator[tuple[int, list[int]]]:
        """Yield (offset of the first, ids) of runs, or of parts of long ones."""
        for run, start in enumerate(self.run_starts):
            last = run + 1 == len(self.run_starts)
            end = len(self.ids) if last else self.run_starts[run + 1]
            for part in range(start, end, _CHUNK):
                ids = self.ids[part : min(end, part + _CHUNK)].tolist()
                yield self.run_offsets[run] + part - start, ids

    def covers(self, offset: int) -> bool:
        """Tell whether a record at an offset was read."""
        ends = [*self.run_starts[1:], len(self.ids)]
        return any(
            first <= offset < first + end - start
            for first, start, end in zip(self.run_offsets, self.run_starts, ends, strict=True)
        )

    def timed(self) -> Iterator[tuple[float, array[int]]]:
        """Yield (time, ids) of each poll."""
        ends = [*self.poll_starts[1:], len(self.ids)] if self.poll_starts else []
        for at_s, start, end in zip(self.poll_s, self.poll_starts, ends, strict=True):
            yield at_s, self.ids[start:end]

    def jumps(self) -> Iterator[tuple[int, int, int]]:
        """Yield (offset before, offset, place of the record) where offsets do not follow."""
        for run in range(1, len(self.run_starts)):
            length = self.run_starts[run] - self.run_starts[run - 1]
            before = self.run_offsets[run - 1] + length - 1
            yield before, self.run_offsets[run], self.run_starts[run]

    def poll_of(self, place: int) -> int:
        """Return the poll that a record came with."""
        return bisect_right(self.poll_starts, place) - 1
