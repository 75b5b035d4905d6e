"""Varints, which Kafka's records consist of: whole columns of them to bytes.

The encoding is that of Protocol Buffers: zigzag (0, -1, 1, -2 become 0, 1, 2, 3), least significant
seven bits first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

MOST_VARINT_BYTES: Final = 10
_LOOKED_UP: Final = 1 << 16

_ONE = pa.scalar(1, pa.int64())
# Arrow cannot shift signed numbers by 63 bits; no number here has more than 62.
_SIGN = pa.scalar(62, pa.int64())


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
