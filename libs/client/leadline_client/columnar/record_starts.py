"""Where each record of a batch begins. It depends on the record before, so no kernel finds it.

A loop of Python takes a short step for each record. Records of one size take none: slices compare
the lengths of all of them at once.
"""

from __future__ import annotations

from typing import Final

from leadline_client.columnar.varints import varint_at

_STEPS: Final = tuple(1 + (low >> 1) if low < 0x80 else 2 + (low >> 1 & 0x3F) for low in range(256))
"""By the first byte of a length: the size of the record, as far as that byte alone tells it."""

_LEAST_RUN: Final = 16
_STEPS_BETWEEN_RUNS: Final = 512


def record_starts(octets: bytes, position: int, count: int, starts: list[int]) -> int:
    """Append the position of each of `count` records to `starts`; return where the last one ends.

    Does not check the sign of lengths: the caller does when it decodes the records. Raises
    IndexError and UnreadableRecords.
    """
    left = count
    while left:
        run, size = _run(octets, position, min(left, _LEAST_RUN))
        if run == _LEAST_RUN:
            run, size = _run(octets, position, left)
            end = position + run * size
            starts.extend(range(position, end, size))
            position, left = end, left - run
        else:
            steps = min(left, _STEPS_BETWEEN_RUNS)
            position = _step(octets, position, steps, starts)
            left -= steps
    return position


def _run(octets: bytes, position: int, most: int) -> tuple[int, int]:
    """Return how many records from `position` on have the length of the first, and its size.

    Of lengths of more than two bytes it finds no run.
    """
    low = octets[position]
    size = _STEPS[low]
    if low < 0x80:
        return _equal(octets[position : position + size * most : size]), size
    high = octets[position + 1]
    size += high * 64
    end = position + size * most
    lows, highs = octets[position:end:size], octets[position + 1 : end : size]
    return (min(_equal(lows), _equal(highs)) if high < 0x80 else 0), size


def _equal(octets: bytes) -> int:
    """Return how many of the bytes are the same from the first one on."""
    return len(octets) - len(octets.lstrip(octets[:1]))


def _step(octets: bytes, position: int, count: int, starts: list[int]) -> int:
    append, sizes = starts.append, _STEPS
    for _ in range(count):
        append(position)
        low = octets[position]
        if low < 0x80:
            position += sizes[low]
        elif (high := octets[position + 1]) < 0x80:
            position += sizes[low] + high * 64
        else:
            length, position = varint_at(octets, position)
            position += max(length, 0)
    return position
