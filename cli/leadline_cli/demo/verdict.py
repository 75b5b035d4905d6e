"""What became of every line: lost, duplicated, reordered, altered. Pure.

Line i goes to partition i mod the number of partitions, and carries i in a
header, so that equal lines (there are many empty ones) can be told apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

ReadBack = Mapping[int, Sequence[tuple[int, bytes]]]
"""By partition: (line number, content) in the order of the offsets."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of lines. `lost` are acknowledged ones that nobody can read."""

    sent: int
    acknowledged: int
    lost: int
    duplicated: int
    reordered: int
    altered: int

    @property
    def holds(self) -> bool:
        """Whether every line was acknowledged and is there once, in order, unchanged."""
        wrong = self.lost or self.duplicated or self.reordered or self.altered
        return self.acknowledged == self.sent and not wrong


def judge(lines: Sequence[bytes], acknowledged: Collection[int], read: ReadBack) -> Verdict:
    """Compare what was read back with the input, line by line."""
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
    """Count the numbers that come after a greater one."""
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
