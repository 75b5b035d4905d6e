"""The codec without packages writes and reads what the compiled one does."""

from __future__ import annotations

from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import compiled_codec, plain_codec
from leadline_client.batch_header import header_at
from leadline_client.batches import CODECS, stamp, stored_records
from leadline_client.extras import MissingExtra
from leadline_client.payloads import OutgoingRecord
from leadline_client.unreadable import TooManyHeaders, UnreadableRecords
from leadline_client.wire import Record
from tests.support.bad_input.batches import forged, headed, varint

LIMIT = 1 << 20
DATA = st.none() | st.binary(max_size=40)
TIMES = st.none() | st.integers(0, 2**45)
RECORDS = st.lists(
    st.builds(
        OutgoingRecord,
        value=DATA,
        key=DATA,
        headers=st.lists(st.tuples(st.text(max_size=9), DATA), max_size=3).map(tuple),
        timestamp=TIMES,
    ),
    min_size=1,
    max_size=5,
)
IDENTITY = {"now_ms": 1_790_000_000_000, "producer_id": 7, "producer_epoch": 2, "base_sequence": 9}
SOME = [OutgoingRecord(b"v" * 300, b"k", (("h", None),), 5), OutgoingRecord(None)]


def decoded(by: Any, batch: bytes) -> list[Record]:
    return [one for chunk in by.decode_chunks(batch, LIMIT, stored_records) for one in chunk]


@given(RECORDS)
def test_defect_21_both_codecs_write_the_same_bytes(records: list[OutgoingRecord]) -> None:
    plain = plain_codec.encode_batch(records, compression=CODECS["none"], **IDENTITY)
    assert plain == compiled_codec.encode_batch(records, compression=CODECS["none"], **IDENTITY)
    assert decoded(plain_codec, plain) == decoded(compiled_codec, plain)


@given(st.binary(max_size=200))
def test_both_codecs_have_the_same_checksum(data: bytes) -> None:
    assert plain_codec.crc32c(data) == compiled_codec.crc32c(data)


def test_gzip_needs_no_package() -> None:
    gzip = CODECS["gzip"]
    plain = plain_codec.encode_batch(SOME, compression=gzip, **IDENTITY)
    compiled = compiled_codec.encode_batch(SOME, compression=gzip, **IDENTITY)
    assert decoded(plain_codec, compiled) == decoded(compiled_codec, plain)
    assert len(plain) < 200


@pytest.mark.parametrize("name", ["snappy", "lz4", "zstd"])
def test_defect_21_another_compression_names_the_extra(name: str) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'leadline-client\[records\]'"):
        plain_codec.encode_batch(SOME, compression=CODECS[name], **IDENTITY)
    compiled = compiled_codec.encode_batch(SOME, compression=CODECS[name], **IDENTITY)
    with pytest.raises(MissingExtra):
        decoded(plain_codec, compiled)


@given(st.data())
def test_a_damaged_batch_is_an_error_and_never_a_record_that_was_not_sent(
    data: st.DataObject,
) -> None:
    """The caller checks the CRC first; this is about what comes after a matching one."""
    batch = bytearray(plain_codec.encode_batch(SOME, compression=CODECS["none"], **IDENTITY))
    cut = data.draw(st.integers(62, len(batch) - 1))
    with pytest.raises((ValueError, IndexError)):
        decoded(plain_codec, bytes(batch[:cut]))


@pytest.mark.parametrize("by", [compiled_codec, plain_codec], ids=["compiled", "plain"])
def test_records_are_decoded_in_lists_with_the_offsets_of_the_log(by: Any) -> None:
    batch = bytearray(plain_codec.encode_batch(SOME * 501, compression=0, **IDENTITY))
    stamp(batch, header_at(batch), base_offset=2**40, leader_epoch=3)

    chunks = list(by.decode_chunks(bytes(batch), LIMIT, stored_records))

    assert [len(chunk) for chunk in chunks] == [400, 400, 202]
    assert [one.offset - 2**40 for chunk in chunks for one in chunk] == list(range(1002))
    assert {type(one) for chunk in chunks for one in chunk} == {Record}
    assert chunks[0][0].headers == (("h", None),)


def lengths(size: int) -> bytes:
    """Return a record of so many bytes behind its length, as far as the chunks need to know."""
    return varint(size) + bytes(size)


@given(
    st.lists(st.sampled_from([1, 7, 300, 40_000, 65_533, 65_534, 70_000]), max_size=20),
    st.integers(0, 699),
)
def test_records_of_a_chunk_have_64_kib_or_are_one(sizes: list[int], often: int) -> None:
    records = [lengths(size) for size in sizes for _ in range(1 if size > 300 else often)]
    data = b"".join(records)

    chunks = plain_codec.chunks_in(data, len(records))

    assert [one.start for one in chunks] == [0, *(one.end for one in chunks[:-1])]
    assert (chunks[-1].end, sum(one.records for one in chunks)) == (len(data), len(records))
    number = 0
    for start, end, count in chunks:
        assert data[start:end] == b"".join(records[number : number + count])
        assert count <= plain_codec.CHUNK_RECORDS
        assert count == 1 or end - start <= 64 * 1024
        number += count


def test_a_record_of_negative_length_is_no_way_back() -> None:
    with pytest.raises(UnreadableRecords, match="negative"):
        plain_codec.chunks_in(lengths(9) + varint(-10_000) + bytes(99), 3)


def test_stored_records_may_have_any_number_of_headers() -> None:
    for by in compiled_codec, plain_codec:
        stored = forged(headed(1_001), 1)
        [one] = decoded(by, stored)
        assert len(one.headers) == 1_001
        with pytest.raises(TooManyHeaders):
            list(by.record_chunks(stored, LIMIT, lambda _: None))
        [[count]] = by.record_chunks(forged(headed(1_000), 1), LIMIT, lambda one: len(one.headers))
        assert count == 1_000


@given(st.integers(0, 300_000))
def test_the_checksum_of_pieces_is_that_of_the_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    view = memoryview(data)
    assert compiled_codec.crc32c(view) == google_crc32c.value(data)
