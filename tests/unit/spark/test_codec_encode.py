"""Arrow becomes batches that the client reads back, and keys go where Kafka sends them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import batches
from leadline_client.columnar.compression import WRITABLE
from leadline_client.columnar.encode import Records, concat, encode
from leadline_client.columnar.murmur2 import partitions_of
from leadline_client.murmur2 import murmur2, partition_for_key
from leadline_spark.codec.columns import HEADERS, TYPES
from leadline_spark.codec.stored_batches import decode
from tests.support.kafka_hashes import MURMUR2

NAMES = st.text(max_size=5)
BLOBS = st.none() | st.binary(max_size=100) | st.integers(8_000, 9_000).map(bytes)
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None]


def rows_since(earliest_ms: int) -> st.SearchStrategy[list[Row]]:
    headers = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=9)), max_size=3)
    times = st.integers(earliest_ms, 1 << 45)
    row = st.tuples(BLOBS, BLOBS, st.none() | headers, st.none() | times)
    return st.lists(row, min_size=1, max_size=12)


def columns(rows: list[Row]) -> Records:
    headers = [
        None if row[2] is None else [{"key": name, "value": value} for name, value in row[2]]
        for row in rows
    ]
    return Records(
        pa.array([row[0] for row in rows], pa.binary()),
        pa.array([row[1] for row in rows], pa.binary()),
        pa.array(headers, HEADERS),
        pa.array([row[3] for row in rows], pa.int64()),
    )


def read(batch: bytes) -> list[Row]:
    return [(one.key, one.value, list(one.headers), one.timestamp) for one in batches.decode(batch)]


@given(rows_since(0), st.sampled_from(WRITABLE), st.integers(0, 3))
def test_the_client_reads_what_was_encoded(rows: list[Row], codec: str, skipped: int) -> None:
    # A slice, as Spark's batches are cut: offsets within buffers are not 0.
    before: Row = (b"x", b"y", [("z", b"")], 1)
    records = columns([before] * skipped + rows).slice(skipped, len(rows))
    batch = encode(records, now_ms=77, producer=(9, 3), base_sequence=41, codec=codec)
    (header,) = batches.validate(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 41)
    assert header.attributes == batches.CODECS[codec]
    expected = [
        (key, value, headers or [], 77 if at is None else at) for key, value, headers, at in rows
    ]
    assert read(batch) == expected
    assert header.max_timestamp == max(row[3] for row in expected)


@given(rows_since(-1))
def test_what_is_decoded_encodes_to_the_same_bytes(rows: list[Row]) -> None:
    batch = encode(columns(rows), now_ms=5)
    (decoded,) = decode(batch, 0, len(rows), tuple(TYPES), "t", 0)
    times = decoded["timestamp"].cast(pa.int64()).to_pylist()
    again = Records(
        decoded["key"],
        decoded["value"],
        decoded["headers"],
        pa.array([at // 1000 for at in times], pa.int64()),
    )
    assert encode(again, now_ms=0) == batch


def test_records_without_headers_and_times_are_those_of_other_producers() -> None:
    records = Records(pa.array([None, b"k"], pa.binary()), pa.array([b"v", None], pa.binary()))
    assert read(encode(records, now_ms=7)) == [(None, b"v", [], 7), (b"k", None, [], 7)]


@given(rows_since(-1), st.integers(1, 20_000))
def test_pieces_are_no_larger_than_asked_or_hold_one_record(rows: list[Row], most: int) -> None:
    pieces = list(columns(rows).split(most))
    for piece in pieces:
        assert len(piece) == 1 or sum(piece.sizes().to_pylist()) <= most
        assert len(encode(piece, now_ms=0)) <= sum(piece.sizes().to_pylist()) + 100
    whole = read(encode(columns(rows), now_ms=0))
    assert [row for piece in pieces for row in read(encode(piece, now_ms=0))] == whole
    assert read(encode(concat(pieces), now_ms=0)) == whole


@given(st.lists(st.none() | st.binary(max_size=70), max_size=30), st.integers(1, 1000))
def test_keys_go_where_the_client_sends_them(keys: list[bytes | None], count: int) -> None:
    expected = [None if key is None else partition_for_key(key, count) for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), count).to_pylist() == expected
    skipped = pa.array([b"before", *keys], pa.binary()).slice(1)
    assert partitions_of(skipped, count).to_pylist() == expected


@pytest.mark.parametrize(("key", "hashed"), MURMUR2)
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    expected = (hashed & 0x7FFFFFFF) % 1_000
    assert partitions_of(pa.array([key], pa.binary()), 1_000).to_pylist() == [expected]
