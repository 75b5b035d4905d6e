"""Batches decoded by column and record by record are the same, whatever is in them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_client import batches
from leadline_client.batch_header import HEADER_BYTES, header_at
from leadline_client.codec import CODEC
from leadline_client.columnar.decode import decode
from leadline_client.columnar.layout import Layout
from leadline_client.columnar.record_starts import RecordStarts
from leadline_client.errors import LeadlineError, UnreadableBatch
from leadline_client.payloads import OutgoingRecord
from leadline_client.plain_codec import put_varint
from leadline_client.record_checks import check_batches, finish
from leadline_client.table_reading import SCHEMA
from leadline_client.wire import Record
from tests.support.bad_input.batches import HOSTILE, Hostile, forged, record

LAYOUT = Layout(SCHEMA, "t", 3)
CODECS = st.sampled_from(sorted(batches.CODECS))
# Lengths of one, two and three bytes begin at 64 and 8192.
BLOBS = st.none() | st.binary(max_size=80) | st.integers(60, 9000).map(bytes)
RECORDS = st.builds(
    OutgoingRecord,
    value=BLOBS,
    key=BLOBS,
    headers=st.just(()) | st.lists(st.tuples(st.text(max_size=5), BLOBS), max_size=3).map(tuple),
    timestamp=st.integers(0, 100) | st.integers(0, 253_402_300_799_999),
)
ALIKE = st.tuples(RECORDS, st.integers(1, 200) | st.just(2000)).map(
    lambda pair: [pair[0]] * pair[1]
)
BATCHES = st.lists(RECORDS, min_size=1, max_size=8) | ALIKE
APPEND_TIME = 8


def stored(
    records: Sequence[OutgoingRecord], base: int, codec: str = "none", *, by_log: bool = False
) -> bytes:
    """Return a batch as a log has it, at offset `base`."""
    batch = bytearray(batches.encode(records, now_ms=0, compression=codec))
    batches.stamp(batch, header_at(batch), base, 0)
    return attributed(batch, APPEND_TIME) if by_log else bytes(batch)


def attributed(batch: bytes | bytearray, bits: int) -> bytes:
    changed = bytearray(batch)
    changed[22] |= bits
    return resealed(changed)


def resealed(batch: bytes | bytearray) -> bytes:
    """Return the batch with a checksum that is right again."""
    changed = bytearray(batch)
    struct.pack_into(">I", changed, 17, CODEC.crc32c(bytes(changed[21:])))
    return bytes(changed)


def by_column(data: bytes, start: int, end: int, layout: Layout = LAYOUT) -> list[Record]:
    found: list[Record] = []
    for batch in decode(data, start, end, layout):
        batch.validate(full=True)
        assert batch.schema == layout.schema
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        rows = batch.drop_columns(["timestamp"]).to_pylist()
        for row, time in zip(rows, times, strict=True):
            assert (row["topic"], row["partition"]) == ("t", 3)
            headers = tuple((one["key"], one["value"]) for one in row["headers"])
            found.append(Record(row["offset"], time, row["key"], row["value"], headers))
    return found


def by_record(data: bytes, start: int, end: int) -> list[Record]:
    return [one for one in batches.decode(data) if start <= one.offset < end]


@given(
    st.lists(st.tuples(BATCHES, CODECS, st.booleans(), st.integers(0, 3)), max_size=5),
    st.integers(0, 60),
    st.integers(0, 600),
    st.sampled_from([(10_000, 1 << 20), (3, 1 << 20), (10_000, 100)]),
)
def test_both_decoders_read_the_same(
    content: list[tuple[list[OutgoingRecord], str, bool, int]],
    start: int,
    length: int,
    most: tuple[int, int],
) -> None:
    """Keys, values and headers or none, both timestamp types, every codec, any range and size."""
    data, base = b"", 7
    for records, codec, by_log, gap in content:
        data += stored(records, base + gap, codec, by_log=by_log)
        base += gap + len(records)
    layout = replace(LAYOUT, most_rows=most[0], most_bytes=most[1])
    end = start + length
    assert by_column(data, start, end, layout) == by_record(data, start, end)


def outcome(read: Iterator[Any]) -> str:
    try:
        list(read)
    except UnreadableBatch as error:
        return f"unreadable at {error.offset}, next {error.next_offset}"
    except LeadlineError as error:
        return type(error).__name__
    return "read"


@settings(max_examples=500)
@given(
    st.lists(RECORDS, min_size=1, max_size=4),
    st.integers(0, 10_000),
    st.integers(1, 255),
    st.booleans(),
)
def test_both_decoders_refuse_the_same(
    records: list[OutgoingRecord], where: int, change: int, seal: bool
) -> None:
    """A byte of the records is damaged, with a right CRC or not."""
    batch = bytearray(stored(records, 0))
    where = HEADER_BYTES + where % (len(batch) - HEADER_BYTES)
    batch[where] ^= change
    data = resealed(batch) if seal else bytes(batch)
    expected = outcome(batches.decode(data))
    assert outcome(decode(data, 0, 1 << 62, LAYOUT)) == expected
    if expected == "read":
        assert by_column(data, 0, 1 << 62) == by_record(data, 0, 1 << 62)


@pytest.mark.parametrize("one", HOSTILE, ids=str)
def test_what_no_broker_accepts_is_refused_by_both_or_by_the_columns_alone(one: Hostile) -> None:
    expected = outcome(batches.decode(one.data))
    assert outcome(decode(one.data, 0, 1 << 62, LAYOUT)) in {expected, "CorruptBatch"}


def test_the_latest_time_that_a_broker_accepts_fits_into_microseconds() -> None:
    """Spark has no others: one record could stop whoever reads its partition."""
    latest = batches.LATEST_TIMESTAMP
    data = batches.encode([OutgoingRecord(b"a", timestamp=latest)], now_ms=0)
    finish(check_batches(data, len(data), len(data)))
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])

    (batch,) = decode(data, 0, 1, replace(LAYOUT, schema=schema))

    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [latest * 1000]
    assert latest * 1000 < 2**63 <= (latest + 1) * 1000


def test_control_batches_have_no_rows() -> None:
    data = stored([OutgoingRecord(b"a")], 0) + attributed(stored([OutgoingRecord(b"end")], 1), 0x30)
    data += stored([OutgoingRecord(b"b")], 2)
    assert [(one.offset, one.value) for one in by_column(data, 0, 9)] == [(0, b"a"), (2, b"b")]


@pytest.mark.parametrize(
    ("offsets", "last"),
    [((0, 2), 2), ((1, 0), 1), ((0, 0), 1), ((5, 6), 1), ((-1, 0), 1), ((0, 1), 4), ((0, 1), 0)],
    ids=["gap", "back", "twice", "behind", "before", "too few", "too many"],
)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_records_that_do_not_have_the_offsets_of_their_batch_are_not_delivered(
    offsets: tuple[int, ...], last: int, codec: str
) -> None:
    section = b"".join(map(record, offsets))
    packed = section if codec == "none" else gzip.compress(section)
    number = batches.CODECS[codec]
    one = bytearray(forged(packed, len(offsets), attributes=number, last_offset_delta=last))
    batches.stamp(one, header_at(one), 7, 0)
    data = stored([OutgoingRecord(b"before")], 6) + one
    expected = f"unreadable at 7, next {8 + last}"
    assert outcome(batches.decode(data)) == expected
    assert outcome(decode(data, 0, 1 << 62, LAYOUT)) == expected


@pytest.mark.parametrize(("last", "base"), [(-1, 7), (-8, 7), (-(2**31), 7), (0, -1)])
def test_a_batch_of_negative_offsets_is_corrupt(last: int, base: int) -> None:
    data = bytearray(forged(record(0), 1, last_offset_delta=last))
    batches.stamp(data, header_at(data), base, 0)
    assert outcome(batches.decode(data)) == "CorruptBatch"
    assert outcome(decode(bytes(data), 0, 1 << 62, LAYOUT)) == "CorruptBatch"


@pytest.mark.parametrize("base", [0, 1, 2])
def test_a_batch_that_begins_within_the_one_before_is_corrupt(base: int) -> None:
    data = stored([OutgoingRecord(b"a")] * 2, 1) + stored([OutgoingRecord(b"b")], base)
    assert outcome(batches.decode(data)) == "CorruptBatch"
    assert outcome(decode(data, 0, 1 << 62, LAYOUT)) == "CorruptBatch"


def test_a_batch_without_records_loses_none_of_its_offsets() -> None:
    data = forged(b"", 0, last_offset_delta=3)
    assert outcome(batches.decode(data)) == "unreadable at 0, next 4"
    assert outcome(decode(data, 0, 1 << 62, LAYOUT)) == "unreadable at 0, next 4"


def test_a_cut_batch_is_corrupt() -> None:
    whole = stored([OutgoingRecord(b"v")], 0)
    for size in range(1, len(whole)):
        assert outcome(decode(whole + whole[:size], 0, 9, LAYOUT)) == "CorruptBatch"


@pytest.mark.parametrize("compressed", ["none", "gzip"])
def test_of_several_batches_the_one_that_is_malformed_is_named(compressed: str) -> None:
    """They are decoded together, and what comes before it is read."""
    parts = [stored([OutgoingRecord(b"%d" % n)] * 2, n * 2, compressed) for n in range(4)]
    damaged = bytearray(parts[2])
    damaged[HEADER_BYTES + 1] ^= 0xFF
    parts[2] = resealed(damaged)
    found: list[pa.RecordBatch] = []
    with pytest.raises(UnreadableBatch) as refused:
        found.extend(decode(b"".join(parts), 0, 99, LAYOUT))
    assert [row["offset"] for batch in found for row in batch.to_pylist()] == [0, 1, 2, 3]
    assert (refused.value.offset, refused.value.next_offset) == (4, 6)


def test_headers_that_nobody_wants_are_not_decoded() -> None:
    """Their names may be anything then: no column holds them."""
    batch = bytearray(stored([OutgoingRecord(b"v", b"k", (("n", b""),))], 0))
    where = batch.index(b"n", HEADER_BYTES)
    batch[where] = 0xFF
    values = replace(LAYOUT, schema=pa.schema([SCHEMA.field("value")]))
    (found,) = decode(resealed(batch), 0, 1, values)
    assert found.to_pylist() == [{"value": b"v"}]
    (lenient,) = decode(resealed(batch), 0, 1, replace(LAYOUT, name_errors="replace"))
    assert lenient.column("headers").to_pylist() == [[{"key": "\ufffd", "value": b""}]]
    assert outcome(decode(resealed(batch), 0, 1, LAYOUT)) == "unreadable at 0, next 1"


SIZES = st.lists(
    st.tuples(st.sampled_from([5, 63, 64, 65, 300]), st.integers(1, 40) | st.just(600))
    | st.tuples(st.sampled_from([8191, 8192, 20_000]), st.integers(1, 4)),
    min_size=1,
    max_size=9,
)


@given(SIZES, st.integers(0, 7))
def test_each_record_begins_where_the_one_before_ends(
    runs: list[tuple[int, int]], begin: int
) -> None:
    """Runs of records of one size, among others, with lengths of one, two and three bytes."""
    data, expected = bytearray(begin), []
    for size, count in runs:
        for _ in range(count):
            expected.append(len(data))
            put_varint(data, size)
            data += bytes(size)
    starts = RecordStarts(bytes(data))
    half = len(expected) // 2
    assert starts.add(starts.add(begin, half), len(expected) - half) == len(data)
    assert starts.column().to_pylist() == expected
