"""CRC-32C, the checksum of record batches: by google-crc32c if installed, otherwise by folding.

The standard library has no CRC-32C, and a table costs a step of Python for every byte. Folding
needs few steps. A multiple of the CRC's polynomial with few terms has remainder zero, so that
x^6777 can be replaced by x^484 + x^100 + 1, for thousands of bits at a time. Squaring doubles the
exponents in GF(2), so the same holds for 64 times each exponent, which folds words instead of bits.
Arrow's kernels fold large batches, Python's integers the rest, and a table does the last bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.batch_header import Buffer

Checksum = Callable[[Buffer], int]

_compiled: Callable[[bytes | pa.Buffer], int] | None
try:
    from google_crc32c import value as _value
except ImportError:  # an extra of either package has it
    _compiled = None
else:
    _compiled = _value

COMPILED = _compiled is not None
"""Whether google-crc32c is installed."""

_REFLECTED_POLYNOMIAL = 0x82F63B78
_ALL_ONES = 0xFFFFFFFF
_WORD_BYTES = 8

# Exponents of multiples of the polynomial. A wider gap after the first exponent removes more per
# fold. Of the multiples with four terms, this is among the lowest with a wide gap.
_FEW_TERMS = (6777, 484, 100, 0)
_LOW_DEGREE = (290, 136, 113, 107, 32, 0)
# For fewer words than this the kernels cost more than they save.
_LEAST_WORDS = 2 * _FEW_TERMS[0]


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C of `data`."""
    # The library refuses a memoryview, but not Arrow's view of the same bytes.
    return folded_crc32c(data) if _compiled is None else _compiled(pa.py_buffer(data))


def folded_crc32c(data: Buffer) -> int:
    """Return the CRC-32C of `data` without a compiled library."""
    if len(data) * 8 <= _LOW_DEGREE[0]:
        return _by_table(data, _ALL_ONES) ^ _ALL_ONES
    # Bit 0 is the highest power of x, so leading zeros change nothing.
    padding = -len(data) % _WORD_BYTES
    words = bytearray(padding) + data
    for position in range(padding, padding + 4):
        words[position] ^= 0xFF
    left = _fold_words(words)
    bits = len(left) * 8
    folded = int.from_bytes(left, "little")
    for exponents in (_FEW_TERMS, _LOW_DEGREE):
        folded, bits = _fold_bits(folded, bits, exponents)
    size = (bits + 7) // 8
    return _by_table((folded << size * 8 - bits).to_bytes(size, "little"), 0) ^ _ALL_ONES


def _fold_words(data: bytearray) -> memoryview:
    """Return fewer bytes with the same remainder; overwrites `data`."""
    start, count = 0, len(data) // _WORD_BYTES
    view = memoryview(data)
    words = pa.Array.from_buffers(pa.uint64(), count, [None, pa.py_buffer(data)])
    while count > _LEAST_WORDS:
        scale, step = _next_fold(count, _FEW_TERMS)
        top = words.slice(start, step)
        for exponent in _FEW_TERMS[1:]:
            position = start + (_FEW_TERMS[0] - exponent) * scale
            folded = pc.bit_wise_xor(words.slice(position, step), top)
            octets = memoryview(folded.buffers()[1]).cast("B")[: step * _WORD_BYTES]
            view[position * _WORD_BYTES : (position + step) * _WORD_BYTES] = octets
        start, count = start + step, count - step
    return view[start * _WORD_BYTES :]


def _fold_bits(data: int, bits: int, exponents: tuple[int, ...]) -> tuple[int, int]:
    """Return a polynomial with the same remainder and no more bits than the first exponent.

    Each fold cuts off the highest powers of x, and adds them again for each other exponent.
    """
    degree, *others = exponents
    while bits > degree:
        scale, step = _next_fold(bits, exponents)
        top = data & ((1 << step) - 1)
        data >>= step
        for exponent in others:
            data ^= top << (degree - exponent) * scale - step
        bits -= step
    return data, bits


def _next_fold(count: int, exponents: tuple[int, ...]) -> tuple[int, int]:
    """Return the factor for the exponents, a power of two, and how many bits or words to fold."""
    degree, second = exponents[:2]
    scale = 1 << max((count // degree).bit_length() - 2, 0)
    return scale, min((degree - second) * scale, count - degree * scale)


def _by_table(data: Buffer, state: int) -> int:
    table = _TABLE
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


def _table_row(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_REFLECTED_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_table_row(byte) for byte in range(256))
