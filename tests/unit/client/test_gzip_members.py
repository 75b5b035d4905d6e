"""Gzip files of many members are unpacked without a copy of the rest for each of them."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import plain_codec
from leadline_client.batches import CODECS, stored_records
from leadline_client.gzip_members import unpack
from leadline_client.unreadable import DecompressedTooLarge, UnreadableRecords
from tests.support.bad_input.batches import forged, record

MEMBERS = st.lists(st.binary(max_size=3000), min_size=1, max_size=6)
EMPTY = gzip.compress(b"", mtime=0)


def packed(members: list[bytes]) -> bytes:
    return b"".join(gzip.compress(one, mtime=0) for one in members)


@given(MEMBERS)
def test_the_members_of_a_file_are_one_content(members: list[bytes]) -> None:
    content = b"".join(members)
    assert unpack(packed(members), len(content)) == content


@given(MEMBERS, st.integers(1, 3000))
def test_more_than_the_limit_is_refused(members: list[bytes], by: int) -> None:
    limit = len(b"".join(members)) - by
    if limit >= 0:
        with pytest.raises(DecompressedTooLarge):
            unpack(packed(members), limit)


def test_a_small_file_of_a_large_content_ends_at_the_limit() -> None:
    with pytest.raises(DecompressedTooLarge):
        unpack(packed([bytes(64 << 20)]), 1000)


@given(MEMBERS, st.data())
def test_a_file_that_is_not_whole_is_refused(members: list[bytes], data: st.DataObject) -> None:
    last = len(gzip.compress(members[-1], mtime=0))
    lost = data.draw(st.integers(1, last - 1))
    with pytest.raises(UnreadableRecords):
        unpack(packed(members)[:-lost], 1 << 20)


def test_each_byte_is_handed_over_a_limited_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed = 0
    make = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._below = make(wbits)

        def decompress(self, data: Any, *limits: int) -> bytes:
            nonlocal handed
            handed += len(data)
            return self._below.decompress(data, *limits)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._below, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    section = EMPTY * 5_000 + packed([record(0)])
    batch = forged(section, 1, attributes=CODECS["gzip"])
    (found,) = plain_codec.decode_chunks(batch, 1 << 20, stored_records)
    assert [one.offset for one in found] == [0]
    assert handed < 64 * len(section)
