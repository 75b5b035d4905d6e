"""Decompression of records into a buffer of limited size; the only module that imports cramjam.

A batch of a few kilobytes may decompress to gigabytes. The output goes into a buffer that cannot
grow, so that decompression ends at its end whatever the input declares.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam

from leadline_client.unreadable import DecompressedTooLarge, UnreadableRecords

Buffer = bytes | bytearray | memoryview

_GZIP: Final = 1
_SNAPPY: Final = 2
_LZ4: Final = 3
_ZSTD: Final = 4
_INTO: Final[dict[int, Callable[[Any, Any], int]]] = {
    _GZIP: cramjam.gzip.decompress_into,
    _LZ4: cramjam.lz4.decompress_into,
    _ZSTD: cramjam.zstd.decompress_into,
}
_BUFFER_IS_FULL: Final = "failed to write whole buffer"
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_SIZE: Final = struct.Struct(">i")
_CONTINUED: Final = 0x80
_MOST_LENGTH_BYTES: Final = 5
_MOST_EAGER_BYTES: Final = 1 << 20


def decompress(data: Buffer, compression: int, limit: int) -> Buffer:
    """Return the decompressed records; `compression` is Kafka's number of the codec.

    Raises:
        DecompressedTooLarge: they have more than `limit` bytes; not much more is in memory.
        UnreadableRecords: the data is damaged, or the codec unknown.

    """
    try:
        if compression == _SNAPPY:
            return _snappy(memoryview(data), limit)
        if compression not in _INTO:
            raise UnreadableRecords(f"compression {compression} is unknown")
        room = _room(limit)
        size = _INTO[compression](data, room)
    except cramjam.DecompressionError as error:
        if _BUFFER_IS_FULL in str(error):
            raise DecompressedTooLarge(limit) from None
        raise UnreadableRecords("the compressed records are damaged") from error
    return memoryview(room)[:size]


def _room(limit: int) -> bytearray | mmap.mmap:
    """Return a buffer; the pages of a large one take no memory before they are written."""
    return bytearray(limit) if limit <= _MOST_EAGER_BYTES else mmap.mmap(-1, limit)


def _snappy(data: memoryview, limit: int) -> Buffer:
    """Decompress a block, or the blocks of snappy-java ("xerial"), each after its size."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit, limit)
    plain = bytearray()
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        if position + _BLOCK_SIZE.size > len(data):
            raise UnreadableRecords("a snappy block has no size")
        (size,) = _BLOCK_SIZE.unpack_from(data, position)
        position += _BLOCK_SIZE.size
        if not 0 < size <= len(data) - position:
            raise UnreadableRecords(f"a snappy block of {size} bytes does not fit")
        plain += _snappy_block(data[position : position + size], limit - len(plain), limit)
        position += size
    return plain


def _snappy_block(block: memoryview, room: int, limit: int) -> bytes:
    """Decompress a block that says first how many bytes it has, at most `room`."""
    if all(octet >= _CONTINUED for octet in block[:_MOST_LENGTH_BYTES]):
        # This library would take it, others would not: it would be stored, but not read by all.
        raise UnreadableRecords("a snappy block does not begin with its length")
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise DecompressedTooLarge(limit)
    return bytes(cramjam.snappy.decompress_raw(block))
