"""The record section of a batch, compressed and not: what pyarrow and zlib can do is enough.

Kafka's numbers for codecs: gzip 1, snappy 2, lz4 3 (frame format), zstd 4. Snappy comes raw or in
the chunks of snappy-java ("xerial"), which most clients write.
"""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
WRITABLE = ("none", "lz4", "zstd", "snappy", "gzip")
MOST_BYTES = 1 << 30
"""A section that unpacks to more is refused: positions in it have to fit into 32 bits."""

_GZIP_WINDOW = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_CHUNK_SIZE = struct.Struct(">i")


class UnreadableSection(ValueError):
    """The bytes are not what the codec writes, or too many."""


def compress(data: pa.Buffer, codec: str) -> pa.Buffer:
    """Return `data` packed by a codec of `WRITABLE`."""
    if codec == "none":
        return data
    if codec == "gzip":
        packer = zlib.compressobj(wbits=_GZIP_WINDOW)
        return pa.py_buffer(packer.compress(data) + packer.flush())
    return pa.Codec(codec).compress(data)


def decompress(data: memoryview, number: int) -> pa.Buffer:
    """Return the section behind `data`; `number` is the codec's in the batch's attributes.

    Raises UnreadableSection.
    """
    data = data.cast("B")
    try:
        if number == NUMBERS["none"]:
            return pa.py_buffer(data)
        if number == NUMBERS["snappy"]:
            return _unsnap(data)
        name = {1: "gzip", 3: "lz4", 4: "zstd"}.get(number)
        if name is None:
            raise UnreadableSection(f"compression {number} is unknown")
        with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
            plain = stream.read_buffer(MOST_BYTES + 1)
    except (pa.ArrowException, OSError, struct.error, EOFError) as failure:
        raise UnreadableSection(str(failure)) from failure
    if plain.size > MOST_BYTES:
        raise UnreadableSection(f"it unpacks to more than {MOST_BYTES} bytes")
    return plain


def _unsnap(data: memoryview) -> pa.Buffer:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnap_block(data)
    plain = []
    position = _XERIAL_HEADER
    while position < len(data):
        (size,) = _CHUNK_SIZE.unpack_from(data, position)
        position += _CHUNK_SIZE.size
        if size < 0 or position + size > len(data):
            raise UnreadableSection(f"a snappy chunk of {size} bytes does not fit")
        plain.append(_unsnap_block(data[position : position + size]))
        position += size
    if sum(block.size for block in plain) > MOST_BYTES:
        raise UnreadableSection(f"it unpacks to more than {MOST_BYTES} bytes")
    return pa.py_buffer(b"".join(plain))


def _unsnap_block(block: memoryview) -> pa.Buffer:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > MOST_BYTES:
        raise UnreadableSection(f"a snappy block says that it unpacks to {size} bytes")
    return pa.Codec("snappy").decompress(block, decompressed_size=size)
