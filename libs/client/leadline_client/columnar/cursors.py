"""Read positions in many records at once: Arrow's kernels read a number at each of them.

A kernel takes about a nanosecond a row, a step of a Python loop fifty. Numbers of one or two bytes,
which almost all are, are decoded in columns of 8 or 16 bits, longer ones in 64. Constants are Arrow
scalars because the conversion of a Python number takes longer than the kernel.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.columnar.varints import MOST_VARINT_BYTES
from leadline_client.unreadable import UnreadableRecords

_INDEX = pa.int32()
_ONE = pa.scalar(1, _INDEX)
_TWO = pa.scalar(2, _INDEX)
_ANYWHERE = pa.scalar(0, _INDEX)
_NO_OCTET = pa.scalar(0, pa.uint8())
_CONTINUED = pa.scalar(0x80, pa.uint8())
_SEVEN_BITS = pa.scalar(0x7F, pa.uint64())
_SHIFTS = tuple(pa.scalar(7 * index, pa.uint64()) for index in range(MOST_VARINT_BYTES))
_LOW_SEVEN = pa.scalar(0x7F, pa.uint16())
_HIGH_SHIFT = pa.scalar(7, pa.uint16())
_SIGNED = {pa.uint8(): pa.int8(), pa.uint16(): pa.int16(), pa.uint64(): pa.int64()}
_LOW_BITS = {kind: pa.scalar(1, kind) for kind in _SIGNED}
_ZEROS = {kind: pa.scalar(0, kind) for kind in _SIGNED}


class Cursors:
    """One read position for each record of `octets`. All of them advance together.

    `positions` are 32-bit numbers.
    """

    def __init__(self, octets: pa.Buffer, positions: pa.Int32Array) -> None:
        self._octets = pa.Array.from_buffers(pa.uint8(), octets.size, [None, octets])
        self.positions = positions

    def skip(self, count: pa.Scalar | pa.Int32Array) -> None:
        """Advance by so many bytes."""
        self.positions = pc.add(self.positions, count)

    def octet(self) -> pa.UInt8Array:
        """Read one byte at every position, and advance past it. Raises UnreadableRecords."""
        octets = self._at(self.positions)
        self.skip(_ONE)
        return octets

    def number(self) -> pa.Array:
        """Read one varint at every position, and advance past it, into 32 or 64 bits.

        Raises UnreadableRecords.
        """
        first = self._at(self.positions)
        least, most = _extremes(first)
        if most < 0x80:
            self.skip(_ONE)
            if least == most:
                return pa.repeat(pa.scalar(least >> 1 ^ -(least & 1), _INDEX), len(first))
            return _decoded(first).cast(_INDEX)
        if least >= 0x80:
            more = None
            second = self._at(pc.add(self.positions, _ONE))
        else:
            more = pc.greater_equal(first, _CONTINUED)
            second = self._second(more)
        if _extremes(second)[1] >= 0x80:
            return self._long_number()
        self.skip(_TWO if more is None else pc.add(more.cast(_INDEX), _ONE))
        low = pc.bit_wise_and(first.cast(pa.uint16()), _LOW_SEVEN)
        high = pc.shift_left(second.cast(pa.uint16()), _HIGH_SHIFT)
        return _decoded(pc.bit_wise_or(low, high)).cast(_INDEX)

    def _second(self, more: pa.BooleanArray) -> pa.UInt8Array:
        """Return the byte after the first one, for the numbers that have more, or else 0."""
        # A number that is complete may end at the last byte: read another position instead.
        after = pc.add(self.positions, _ONE)
        return pc.if_else(more, self._at(pc.if_else(more, after, _ANYWHERE)), _NO_OCTET)

    def _long_number(self) -> pa.Int64Array:
        octets = self.octet()
        more = pc.greater_equal(octets, _CONTINUED)
        number = pc.bit_wise_and(octets.cast(pa.uint64()), _SEVEN_BITS)
        for shift in _SHIFTS[1:]:
            octets = pc.if_else(
                more, self._at(pc.if_else(more, self.positions, _ANYWHERE)), _NO_OCTET
            )
            part = pc.bit_wise_and(octets.cast(pa.uint64()), _SEVEN_BITS)
            number = pc.bit_wise_or(number, pc.shift_left(part, shift))
            self.skip(more.cast(_INDEX))
            more = pc.greater_equal(octets, _CONTINUED)
            if not pc.any(more).as_py():
                return _decoded(number)
        raise UnreadableRecords("a number has more than ten bytes")

    def _at(self, positions: pa.Int32Array) -> pa.UInt8Array:
        try:
            return self._octets.take(positions)
        except IndexError as outside:
            raise UnreadableRecords("a record ends in the middle of a number") from outside


def _extremes(octets: pa.UInt8Array) -> tuple[int, int]:
    found = pc.min_max(octets)
    return found["min"].as_py(), found["max"].as_py()


def _decoded(codes: pa.Array) -> pa.Array:
    """Return the numbers whose zigzag codes these are, in as many bits."""
    kind = codes.type
    sign = pc.subtract(_ZEROS[kind], pc.bit_wise_and(codes, _LOW_BITS[kind]))
    return pc.bit_wise_xor(pc.shift_right(codes, _LOW_BITS[kind]), sign).view(_SIGNED[kind])
