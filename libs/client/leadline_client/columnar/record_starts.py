"""Where each record of a batch begins. It depends on the record before, so no kernel finds it.

A loop of Python takes a short step for each record. Records of one size take none: slices compare
the lengths of all of them at once.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

import pyarrow as pa

from leadline_client.plain_codec import varint_at

_LONG: Final = 1 << 40
"""A step that leads beyond all bytes: a length of more than two bytes has to be decoded."""

_LEAST_RUN: Final = 16
_STEPS_BETWEEN_RUNS: Final = 512
_INDEX: Final = pa.int32()


class RecordStarts:
    """The positions of the records in some sections of `octets`, in the order of the calls."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._columns: list[pa.Int32Array] = []
        self._single: list[int] = []

    def add(self, position: int, count: int) -> int:
        """Add `count` records from `position` on; return where the last one ends.

        Does not check the sign of lengths: the caller does when it decodes the records. Raises
        IndexError and UnreadableRecords.
        """
        left = count
        while left:
            run, size = _run(self._octets, position, min(left, _LEAST_RUN))
            if run == _LEAST_RUN:
                run, size = _run(self._octets, position, left)
                end = position + run * size
                self._add_run(range(position, end, size))
                position, left = end, left - run
            else:
                steps = min(left, _STEPS_BETWEEN_RUNS)
                position = _step(self._octets, position, steps, self._single)
                left -= steps
        return position

    def column(self) -> pa.Int32Array:
        """Return all positions."""
        self._end_column()
        return pa.concat_arrays(self._columns) if len(self._columns) != 1 else self._columns[0]

    def _add_run(self, positions: range) -> None:
        if len(positions) < _STEPS_BETWEEN_RUNS:
            self._single.extend(positions)
            return
        self._end_column()
        column = pa.arange(positions.start, positions.stop, positions.step)
        self._columns.append(column.cast(_INDEX))

    def _end_column(self) -> None:
        if not self._single:
            return
        count = len(self._single)
        packed = pa.py_buffer(struct.pack(f"{count}i", *self._single))
        self._columns.append(pa.Array.from_buffers(_INDEX, count, [None, packed]))
        self._single = []


def _run(octets: bytes, position: int, most: int) -> tuple[int, int]:
    """Return how many records from `position` on have the length of the first, and its size.

    Of lengths of more than two bytes it finds no run.
    """
    low, high = octets[position], octets[position + 1]
    size = _sizes()[low][high]
    if size == _LONG:
        return 0, size
    end = position + size * most
    run = _equal(octets[position:end:size])
    if low >= 0x80:
        run = min(run, _equal(octets[position + 1 : end : size]))
    return run, size


def _equal(octets: bytes) -> int:
    """Return how many of the bytes are the same from the first one on."""
    return len(octets) - len(octets.lstrip(octets[:1]))


def _step(octets: bytes, position: int, count: int, starts: list[int]) -> int:
    append, sizes = starts.append, _sizes()
    goal = len(starts) + count
    while True:
        try:
            for _ in range(goal - len(starts)):
                append(position)
                position += sizes[octets[position]][octets[position + 1]]
        except IndexError:
            if position < _LONG:
                raise
            del starts[-1]
        if position < _LONG:
            return position
        length, position = varint_at(octets, starts[-1])
        position += max(length, 0)
        if position > len(octets):
            raise IndexError(position)


@lru_cache(maxsize=1)
def _sizes() -> tuple[tuple[int, ...], ...]:
    """Return the size of a record by the first and the second byte of its length."""
    short = [(1 + (low >> 1),) * 256 for low in range(0x80)]
    beyond = (_LONG,) * 0x80
    long = [
        tuple(2 + (low >> 1 & 0x3F) + 64 * high for high in range(0x80)) + beyond
        for low in range(0x80, 0x100)
    ]
    return (*short, *long)
