"""Decompression of a gzip file of any number of members, in time linear in what it has."""

from __future__ import annotations

import zlib
from typing import Final

from leadline_client.unreadable import DecompressedTooLarge, UnreadableRecords

WINDOW: Final = 31
"""How zlib is told that a stream is a member of a gzip file."""
_FIRST_PIECE_BYTES: Final = 512


def unpack(packed: bytes, limit: int) -> bytes:
    """Return the content of all members; most files have one.

    Raises:
        DecompressedTooLarge: they have more than `limit` bytes; not much more is in memory.
        UnreadableRecords: a member is damaged or not whole.

    """
    data, position, plain = memoryview(packed), 0, bytearray()
    while position < len(data):
        position = _unpack_member(data, position, plain, limit)
    return bytes(plain)


def _unpack_member(data: memoryview, position: int, plain: bytearray, limit: int) -> int:
    """Append the content of the member at `position`; return where the next one begins.

    It is unpacked in pieces, each twice the one before it. zlib copies what it was given behind the
    end of a member, and that would be the whole file for each of thousands of empty members.
    """
    unpacker = zlib.decompressobj(wbits=WINDOW)
    size = _FIRST_PIECE_BYTES
    while not unpacker.eof:
        piece = data[position : position + size]
        if not piece:
            raise UnreadableRecords("the compressed records are damaged")
        try:
            plain += unpacker.decompress(piece, limit + 1 - len(plain))
        except zlib.error as error:
            raise UnreadableRecords("the compressed records are damaged") from error
        if len(plain) > limit:
            raise DecompressedTooLarge(limit)
        position += len(piece) - len(unpacker.unused_data)
        size *= 2
    return position
