"""Compressed records as no encoder writes them: what a broker unpacks, all readers unpack alike."""

from __future__ import annotations

import gzip
import struct

from hypothesis import event, given, settings
from hypothesis import strategies as st

from leadline_client import batches, gzip_members
from leadline_client.columnar import compression
from leadline_client.decompression import decompress
from leadline_client.unreadable import UnreadableRecords
from tests.support.bad_input.batches import compressed

_LIMIT = 1 << 20
_PLAIN = b"hello world " * 20
_SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"skip"
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def _whole(codec: str) -> list[bytes]:
    one, other = compressed(_PLAIN, codec), compressed(b"other", codec)
    if codec == "snappy":
        blocks = [struct.pack(">i", len(block)) + block for block in (one, other)]
        return [one, _XERIAL + b"".join(blocks)]
    if codec == "gzip":
        named = gzip.compress(_PLAIN)
        named = named[:3] + b"\x08" + named[4:10] + b"name\0" + named[10:]
        return [one, one + other, named]
    return [one, one + other, _SKIPPABLE + one, one + _SKIPPABLE]


_INPUTS = st.sampled_from(
    [(codec, data) for codec in ("gzip", "snappy", "lz4", "zstd") for data in _whole(codec)]
)
_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete"]),
        st.integers(0, 15) | st.integers(0, 300),
        st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255),
    ),
    max_size=3,
)


def _changed(data: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    found = bytearray(data)
    for kind, where, octet in changes:
        at = where % (len(found) or 1)
        found[at : at + (kind != "insert")] = b"" if kind == "delete" else bytes([octet])
    return bytes(found)


@settings(max_examples=1500)
@given(_INPUTS, _CHANGES)
def test_what_a_broker_unpacks_all_readers_unpack_alike(
    packed: tuple[str, bytes], changes: list[tuple[str, int, int]]
) -> None:
    codec, data = packed[0], _changed(packed[1], changes)
    number = batches.CODECS[codec]
    try:
        expected = bytes(decompress(data, number, _LIMIT))
    except UnreadableRecords:
        event(f"{codec} refused")
        return
    event(f"{codec} accepted")
    assert bytes(compression.decompress(memoryview(data), number)) == expected
    if codec == "gzip":
        assert gzip_members.unpack(data, _LIMIT) == expected
