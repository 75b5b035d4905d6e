"""Finding values that fall along real time: for offsets of sends, commits and advertised ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """Something that began and ended, and the lowest and highest offset that it had."""

    began_s: float
    ended_s: float
    low: int
    high: int
    number: int
    """Whatever the caller knows it by."""


def falls(intervals: Sequence[Interval], bounds: Sequence[Interval]) -> Iterator[tuple[int, int]]:
    """Yield (number, earlier number) of each interval below a bound that ended before it began.

    Two that overlap in time may have any order. Of all bounds before an interval the
    highest is named.
    """
    ended = sorted(bounds, key=lambda one: one.ended_s)
    place, highest, holder = 0, -1, -1
    for one in sorted(intervals, key=lambda one: one.began_s):
        while place < len(ended) and ended[place].ended_s < one.began_s:
            if ended[place].high > highest:
                highest, holder = ended[place].high, ended[place].number
            place += 1
        if one.low < highest:
            yield one.number, holder
