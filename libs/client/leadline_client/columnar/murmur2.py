"""The partitions of a column of keys, by the rule of `leadline_client.murmur2`.

All keys of a column are hashed together, four bytes of each at a time. Long keys are hashed one by
one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.murmur2 import MULTIPLIER, POSITIVE, SEED, murmur2

_WORD_BYTES = 4
_LONGEST = 64
"""The column-wise hash pads all keys to the longest one, which costs too much beyond this size."""


def _word(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint32())


_MIX_WORD, _SHIFT_24, _SHIFT_13, _SHIFT_15 = (_word(value) for value in (MULTIPLIER, 24, 13, 15))
_POSITIVE_WORD = _word(POSITIVE)


def partitions_of(keys: pa.BinaryArray, count: int) -> pa.Int32Array:
    """Return the partition of each key in a topic with `count` partitions, null for a null key."""
    return modulo(pc.bit_wise_and(_hashes(keys), _POSITIVE_WORD), count)


def modulo(numbers: pa.UInt32Array, count: int) -> pa.Int32Array:
    """Return each number modulo `count`; Arrow has no kernel for that."""
    divisor = _word(count)
    multiples = pc.multiply(pc.divide(numbers, divisor), divisor)
    return pc.subtract(numbers, multiples).cast(pa.int32())


def _hashes(keys: pa.BinaryArray) -> pa.UInt32Array:
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest <= _LONGEST:
        return _side_by_side(keys, longest)
    hashes = [None if key is None else murmur2(key) for key in keys.to_pylist()]
    return pa.array(hashes, pa.uint32())


def _side_by_side(keys: pa.BinaryArray, longest: int) -> pa.UInt32Array:
    """Hash keys padded with zeros: MurmurHash2 itself pads an incomplete last word with zeros."""
    sizes = pc.binary_length(keys).cast(pa.uint32())
    padding = pa.scalar(bytes(longest + _WORD_BYTES), pa.binary())
    padded = pc.binary_join_element_wise(keys.fill_null(b""), padding, pa.scalar(b"", pa.binary()))
    state = pc.bit_wise_xor(sizes, _word(SEED))
    for start in range(0, longest, _WORD_BYTES):
        octets = pc.binary_slice(padded, start, start + _WORD_BYTES)
        word = pa.Array.from_buffers(pa.uint32(), len(keys), [None, octets.buffers()[2]])
        whole = pc.greater_equal(sizes, _word(start + _WORD_BYTES))
        last = pc.and_(pc.greater(sizes, _word(start)), pc.invert(whole))
        rest = pc.multiply(pc.bit_wise_xor(state, word), _MIX_WORD)
        state = pc.if_else(whole, _mixed(state, word), pc.if_else(last, rest, state))
    state = pc.multiply(pc.bit_wise_xor(state, pc.shift_right(state, _SHIFT_13)), _MIX_WORD)
    return pc.bit_wise_xor(state, pc.shift_right(state, _SHIFT_15))


def _mixed(state: pa.UInt32Array, word: pa.UInt32Array) -> pa.UInt32Array:
    word = pc.multiply(word, _MIX_WORD)
    word = pc.multiply(pc.bit_wise_xor(word, pc.shift_right(word, _SHIFT_24)), _MIX_WORD)
    return pc.bit_wise_xor(pc.multiply(state, _MIX_WORD), word)
