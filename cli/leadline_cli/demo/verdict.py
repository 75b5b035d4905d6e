"""Compares every line with what was sent: lost, duplicated, reordered, altered. Pure.

Line i goes to partition i modulo the number of partitions, with i in a header, because many lines
(the empty ones) are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

ReadBack = Mapping[int, Sequence[tuple[int, bytes]]]
"""By partition: (line number, content) in the order of the offsets."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of lines. A `lost` line was acknowledged and cannot be read."""

    sent: int
    acknowledged: int
    lost: int
    duplicated: int
    reordered: int
    altered: int

    @property
    def holds(self) -> bool:
        """Whether every line was acknowledged and can be read once, in order, unchanged."""
        wrong = self.lost or self.duplicated or self.reordered or self.altered
        return self.acknowledged == self.sent and not wrong


def judge(lines: Sequence[bytes], acknowledged: Collection[int], read: ReadBack) -> Verdict:
    """Compare the lines that were read back with the input."""
    numbers = [number for rows in read.values() for number, _ in rows]
    seen = set(numbers)
    return Verdict(
        sent=len(lines),
        acknowledged=len(acknowledged),
        lost=sum(number not in seen for number in acknowledged),
        duplicated=len(numbers) - len(seen),
        reordered=sum(_out_of_order([number for number, _ in rows]) for rows in read.values()),
        altered=sum(
            not _as_sent(lines, len(read), partition, number, content)
            for partition, rows in read.items()
            for number, content in rows
        ),
    )


def _out_of_order(numbers: Sequence[int]) -> int:
    """Count the numbers that follow a greater one."""
    highest = -1
    late = 0
    for number in numbers:
        late += number < highest
        highest = max(highest, number)
    return late


def _as_sent(
    lines: Sequence[bytes], partitions: int, partition: int, number: int, content: bytes
) -> bool:
    known = 0 <= number < len(lines)
    return known and number % partitions == partition and lines[number] == content
