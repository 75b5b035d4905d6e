"""Compression of the record section of a batch, by pyarrow and zlib.

The numbers of codecs are Kafka's: gzip 1, snappy 2, lz4 3 (frame format), zstd 4. Snappy data is
raw or in the chunks of snappy-java ("xerial"), which most clients write.
"""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

from leadline_client.unreadable import (
    MOST_DECOMPRESSED_BYTES,
    DecompressedTooLarge,
    UnreadableRecords,
)

NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
WRITABLE = ("none", "lz4", "zstd", "snappy", "gzip")
MOST_BYTES = MOST_DECOMPRESSED_BYTES
"""The largest section that is decompressed: no broker accepts a larger one."""

_GZIP_WINDOW = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_CHUNK_SIZE = struct.Struct(">i")


def compress(data: pa.Buffer, codec: str) -> pa.Buffer:
    """Return `data` compressed by a codec of `WRITABLE`."""
    if codec == "none":
        return data
    if codec == "gzip":
        packer = zlib.compressobj(wbits=_GZIP_WINDOW)
        return pa.py_buffer(packer.compress(data) + packer.flush())
    return pa.Codec(codec).compress(data)


def decompress(data: memoryview, number: int) -> pa.Buffer:
    """Return the decompressed section; `number` is the codec in the attributes of the batch.

    Raises UnreadableRecords, and DecompressedTooLarge beyond `MOST_BYTES`.
    """
    data = data.cast("B")
    try:
        if number == NUMBERS["none"]:
            return pa.py_buffer(data)
        if number == NUMBERS["snappy"]:
            return _decompress_snappy(data)
        name = {1: "gzip", 3: "lz4", 4: "zstd"}.get(number)
        if name is None:
            raise UnreadableRecords(f"compression {number} is unknown")
        with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
            plain = stream.read_buffer(MOST_BYTES + 1)
    except (pa.ArrowException, OSError, struct.error, EOFError) as failure:
        raise UnreadableRecords("the compressed records are damaged") from failure
    if plain.size > MOST_BYTES:
        raise DecompressedTooLarge(MOST_BYTES)
    return plain


def _decompress_snappy(data: memoryview) -> pa.Buffer:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, MOST_BYTES)
    plain, left = [], MOST_BYTES
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        (size,) = _CHUNK_SIZE.unpack_from(data, position)
        position += _CHUNK_SIZE.size
        if size < 0 or position + size > len(data):
            raise UnreadableRecords(f"a snappy chunk of {size} bytes does not fit")
        plain.append(_decompress_snappy_block(data[position : position + size], left))
        left -= plain[-1].size
        position += size
    return pa.py_buffer(b"".join(plain))


def _decompress_snappy_block(block: memoryview, most_bytes: int) -> pa.Buffer:
    """Decompress a block, unless it says that it unpacks to more than `most_bytes`."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > most_bytes:
        raise DecompressedTooLarge(MOST_BYTES)
    return pa.Codec("snappy").decompress(block, decompressed_size=size)
