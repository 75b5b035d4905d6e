"""Varints of many records at once: Arrow's kernels decode and encode whole columns of them.

A kernel takes about a nanosecond a row, a step of a Python loop fifty. The encoding is that of
Protocol Buffers: zigzag (0, -1, 1, -2 become 0, 1, 2, 3), least significant seven bits first.
Constants are Arrow scalars because the conversion of a Python number takes longer than the kernel.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_MOST_BYTES = 10
_LOOKED_UP = 1 << 16

_ONE = pa.scalar(1, pa.int64())
_ZERO = pa.scalar(0, pa.uint64())
_LOW_BIT = pa.scalar(1, pa.uint64())
_SEVEN_BITS = pa.scalar(0x7F, pa.uint64())
# Arrow cannot shift signed numbers by 63 bits; no number here has more than 62.
_SIGN = pa.scalar(62, pa.int64())
_NOTHING = pa.scalar(0, pa.uint8())
_ANYWHERE = pa.scalar(0, pa.int64())
_CONTINUED = pa.scalar(0x80, pa.uint8())
_SHIFTS = tuple(pa.scalar(7 * index, pa.uint64()) for index in range(_MOST_BYTES))


class MalformedRecord(ValueError):
    """Bytes that are not a record: no valid varint, or a length beyond the end of the batch."""


class Cursors:
    """One read position for each record of a section. All of them advance together."""

    def __init__(self, section: pa.Buffer, positions: pa.Int64Array) -> None:
        self._bytes = pa.Array.from_buffers(pa.uint8(), section.size, [None, section])
        self.positions = positions

    def skip(self, count: pa.Scalar | pa.Int64Array) -> None:
        """Advance by so many bytes."""
        self.positions = pc.add(self.positions, count)

    def varint(self) -> pa.Int64Array:
        """Read one number at every position, and advance past it. Raises MalformedRecord."""
        try:
            return self._varint()
        except IndexError as outside:
            raise MalformedRecord("a record ends in the middle of a number") from outside

    def _varint(self) -> pa.Int64Array:
        octets = self._bytes.take(self.positions)
        self.skip(_ONE)
        number = octets.cast(pa.uint64())
        more = pc.greater_equal(octets, _CONTINUED)
        if pc.any(more).as_py():
            number = self._continued(pc.bit_wise_and(number, _SEVEN_BITS), more)
        sign = pc.subtract(_ZERO, pc.bit_wise_and(number, _LOW_BIT))
        return pc.bit_wise_xor(pc.shift_right(number, _LOW_BIT), sign).view(pa.int64())

    def _continued(self, number: pa.UInt64Array, more: pa.BooleanArray) -> pa.UInt64Array:
        """Add the bytes after the first one, for the numbers that have more."""
        for shift in _SHIFTS[1:]:
            # A number that is complete may end at the last byte: read another position instead.
            octets = self._bytes.take(pc.if_else(more, self.positions, _ANYWHERE))
            octets = pc.if_else(more, octets, _NOTHING)
            part = pc.bit_wise_and(octets.cast(pa.uint64()), _SEVEN_BITS)
            number = pc.bit_wise_or(number, pc.shift_left(part, shift))
            self.skip(more.cast(pa.int64()))
            more = pc.greater_equal(octets, _CONTINUED)
            if not pc.any(more).as_py():
                return number
        raise MalformedRecord("a number has more than ten bytes")


def varint_at(octets: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, and the position after it.

    Raises MalformedRecord and IndexError.
    """
    number = shift = 0
    while shift < 7 * _MOST_BYTES:
        octet = octets[position]
        position += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
    raise MalformedRecord("a number has more than ten bytes")


def record_starts(octets: bytes, position: int, count: int, starts: list[int]) -> int:
    """Append the position of each of `count` records to `starts`; return where the last one ends.

    Does not check the sign of lengths: the caller does when it decodes the records. Raises
    IndexError and MalformedRecord.
    """
    append = starts.append
    for _ in range(count):
        append(position)
        low = octets[position]
        if low < 0x80:
            position += 1 + (low >> 1)
            continue
        high = octets[position + 1]
        if high < 0x80:
            position += 2 + ((high << 7 | low & 0x7F) >> 1)
        else:
            length, position = varint_at(octets, position)
            position += max(length, 0)
    return position


def varint(number: int) -> bytes:
    """Return the encoding of one number."""
    return _stored((number << 1) ^ (number >> 63))


def varints(numbers: pa.Int64Array | pa.Int64Scalar) -> pa.BinaryArray | pa.BinaryScalar:
    """Return the encodings of numbers. Small numbers come from a table."""
    if isinstance(numbers, pa.Scalar):
        return pa.scalar(varint(numbers.as_py()), pa.binary())
    sign = pc.shift_right(numbers, _SIGN)
    codes = pc.bit_wise_xor(pc.shift_left(numbers, _ONE), sign).view(pa.uint64())
    if len(codes) and pc.max(codes).as_py() < _LOOKED_UP:
        return _table().take(codes)
    values = pc.unique(codes)
    stored = pa.array([_stored(code) for code in values.to_pylist()], pa.binary())
    return stored.take(pc.index_in(codes, values))


@lru_cache(maxsize=1)
def _table() -> pa.BinaryArray:
    """Return the encodings of small numbers, by zigzag code."""
    return pa.array([_stored(code) for code in range(_LOOKED_UP)], pa.binary())


def _stored(code: int) -> bytes:
    octets = bytearray()
    while code >= 0x80:
        octets.append(code & 0x7F | 0x80)
        code >>= 7
    octets.append(code)
    return bytes(octets)
