"""Stored batches become Arrow exactly: against the client's codec, and on damaged bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

import google_crc32c
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_client import batches
from leadline_client.batch_header import header_at
from leadline_client.columnar import compression
from leadline_client.columnar.checksum import crc32c, folded_crc32c
from leadline_client.columnar.columns import record_batch
from leadline_client.columnar.layout import Layout
from leadline_client.columnar.sections import Section
from leadline_client.payloads import OutgoingRecord
from leadline_spark.codec.columns import TYPES, schema
from leadline_spark.codec.stored_batches import MOST_ROWS, checksum, decode, stored_headers
from leadline_spark.errors import LeadlineSparkError
from tests.support.bad_input.batches import BOMBS, HOSTILE, LARGE_BOMBS, Hostile

ALL = tuple(TYPES)
TIMESTAMPS = st.integers(-1, 253_402_300_799_999)
BLOBS = st.none() | st.binary(max_size=200)
RECORDS = st.builds(
    OutgoingRecord,
    value=BLOBS,
    key=BLOBS,
    headers=st.lists(st.tuples(st.text(max_size=5), BLOBS), max_size=3).map(tuple),
    timestamp=TIMESTAMPS,
)
CODECS = st.sampled_from(sorted(batches.CODECS))


def stored(records: list[OutgoingRecord], base: int, codec: str = "none", epoch: int = 0) -> bytes:
    batch = bytearray(batches.encode(records, now_ms=0, compression=codec))
    batches.stamp(batch, header_at(batch), base, epoch)
    return bytes(batch)


def resealed(batch: bytes, position: int, value: bytes) -> bytes:
    """Return the batch with a part overwritten and the checksum made right again."""
    changed = bytearray(batch)
    changed[position : position + len(value)] = value
    struct.pack_into(">I", changed, 17, google_crc32c.value(bytes(changed[21:])))
    return bytes(changed)


def rows_of(data: bytes, start: int = 0, end: int = 1 << 62) -> list[dict[str, object]]:
    return [
        row for batch in decode(data, start, end, ALL, "orders", 3) for row in batch.to_pylist()
    ]


def plain(value: object) -> object:
    """Return a row as the client tells it: offset, ms, key, value, headers."""
    assert isinstance(value, dict)
    ms = pa.scalar(value["timestamp"], pa.timestamp("us", "UTC")).value // 1000
    headers = tuple((one["key"], one["value"]) for one in value["headers"])
    return (value["offset"], ms, value["key"], value["value"], headers)


@given(st.lists(st.tuples(st.lists(RECORDS, min_size=1, max_size=8), CODECS), max_size=5))
def test_it_reads_what_the_client_reads(content: list[tuple[list[OutgoingRecord], str]]) -> None:
    data, base = b"", 7
    for records, codec in content:
        data += stored(records, base, codec)
        base += len(records)
    expected = [
        (one.offset, one.timestamp, one.key, one.value, one.headers) for one in batches.decode(data)
    ]
    assert [plain(row) for row in rows_of(data)] == expected
    assert max((header.last_offset for header in stored_headers(data)), default=-1) == (
        base - 1 if content else -1
    )


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(0, 40), st.integers(0, 40))
def test_a_range_holds_the_offsets_from_start_to_before_end(
    sizes: list[int], start: int, end: int
) -> None:
    data, base = b"", 5
    for size in sizes:
        data += stored([OutgoingRecord(b"v", timestamp=0)] * size, base)
        base += size
    expected = [offset for offset in range(5, base) if start <= offset < end]
    assert [row["offset"] for row in rows_of(data, start, end)] == expected


@settings(max_examples=300)
@given(
    st.lists(RECORDS, min_size=1, max_size=5),
    CODECS,
    st.integers(0, 10_000),
    st.integers(1, 255),
    st.booleans(),
)
def test_no_damage_is_more_than_an_error_or_passes_for_the_records(
    records: list[OutgoingRecord], codec: str, where: int, change: int, seal: bool
) -> None:
    batch = stored(records, 0, codec)
    where = 8 + where % (len(batch) - 8)
    value = bytes([batch[where] ^ change])
    data = resealed(batch, where, value) if seal else batch[:where] + value + batch[where + 1 :]
    try:
        found = list(decode(data, 0, 1 << 62, ALL, "orders", 3))
    except LeadlineSparkError as error:
        failure = error.code
    else:
        failure = ""
        for one in found:
            one.validate(full=True)
    # The leader epoch is outside of the checksum, and a resealed batch may be another good one.
    assert failure == "LEADLINE_BATCH_CORRUPT" or (not failure and (seal or where < 16))


def test_a_cut_batch_is_an_error() -> None:
    batch = stored([OutgoingRecord(b"v", timestamp=0)], 0)
    for size in range(1, len(batch)):
        with pytest.raises(LeadlineSparkError, match="LEADLINE_BATCH_CORRUPT"):
            rows_of(batch[:size])


@pytest.mark.parametrize("one", [*BOMBS, *LARGE_BOMBS], ids=str)
def test_a_bomb_is_unpacked_to_the_limit_and_then_named(
    one: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "MOST_BYTES", 1 << 20)
    data = bytearray(one.data)
    batches.stamp(data, header_at(data), 7, 0)
    with pytest.raises(
        LeadlineSparkError, match=r"at offset 7 .* decompress to more than 1048576"
    ) as (refusal):
        rows_of(bytes(data))
    assert refusal.value.code == "LEADLINE_BATCH_CORRUPT"
    assert "start from offset 8 to skip it" in refusal.value.message


@pytest.mark.parametrize("one", HOSTILE, ids=str)
def test_a_stored_batch_that_no_broker_accepts_now_is_no_other_error(one: Hostile) -> None:
    with suppress(LeadlineSparkError):
        rows_of(one.data)


def test_each_column_has_exactly_the_type_that_spark_wants() -> None:
    (batch,) = decode(stored([OutgoingRecord(b"v", timestamp=1)], 0, epoch=9), 0, 1, ALL, "t", 2)
    assert batch.schema == schema(ALL)
    types = {field.name: str(field.type) for field in batch.schema}
    assert types == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int32",
        "offset": "int64",
        "timestamp": "timestamp[us, tz=UTC]",
        "timestampType": "int32",
        "headers": "list<element: struct<key: string, value: binary>>",
        "leaderEpoch": "int32",
    }
    row = batch.to_pylist()[0]
    assert (row["topic"], row["partition"], row["leaderEpoch"]) == ("t", 2, 9)
    batch.validate(full=True)


def test_columns_come_in_the_order_that_is_asked_for() -> None:
    data = stored([OutgoingRecord(b"v", b"k", timestamp=1)], 4)
    (batch,) = decode(data, 0, 9, ("offset", "value"), "t", 0)
    assert batch.to_pylist() == [{"offset": 4, "value": b"v"}]


def test_a_batch_without_some_of_its_offsets_is_corrupt() -> None:
    """Nothing compacts logs, so these records are lost."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset in (0, 3, 4, 9):
        builder.append(offset, 1_000, None, b"%d" % offset, [])
    batch = bytearray(builder.build())
    batches.stamp(batch, header_at(batch), 100, 0)
    with pytest.raises(LeadlineSparkError, match=r"offset 100 .* from offset 110"):
        rows_of(bytes(batch))


def test_control_batches_hold_nothing_for_readers() -> None:
    marker = resealed(stored([OutgoingRecord(b"end", timestamp=0)], 1), 21, b"\x00\x30")
    data = (
        stored([OutgoingRecord(b"a", timestamp=0)], 0)
        + marker
        + stored([OutgoingRecord(b"b", timestamp=0)], 2)
    )
    assert [(row["offset"], row["value"]) for row in rows_of(data)] == [(0, b"a"), (2, b"b")]
    assert [header.is_control for header in stored_headers(data)] == [False, True, False]


def test_the_clock_of_the_log_dates_whole_batches() -> None:
    records = [OutgoingRecord(b"v", timestamp=1_000), OutgoingRecord(b"v", timestamp=5_000)]
    by_log = resealed(stored(records, 0), 21, b"\x00\x08")
    rows = rows_of(by_log + stored(records, 2))
    assert [(row["timestampType"], plain(row)[1]) for row in rows] == [  # type: ignore[index]  # rows are tuples
        (1, 5_000),
        (1, 5_000),
        (0, 1_000),
        (0, 5_000),
    ]


@pytest.mark.parametrize(("size", "least"), [(10, 8_000), (1024, 2_000)])
def test_record_batches_are_as_large_as_spark_takes_them_best(size: int, least: int) -> None:
    record = OutgoingRecord(bytes(size), timestamp=0)
    data = b"".join(stored([record] * 500, base) for base in range(0, 25_000, 500))
    found = list(decode(data, 0, 25_000, ALL, "t", 0))
    assert sum(batch.num_rows for batch in found) == 25_000
    assert all(batch.num_rows <= MOST_ROWS and batch.nbytes < 5 << 20 for batch in found)
    assert all(batch.num_rows >= least for batch in found[:-1])


def test_a_large_batch_is_divided() -> None:
    data = stored([OutgoingRecord(b"v", timestamp=0)] * 25_000, 0)
    found = list(decode(data, 0, 1 << 62, ALL, "t", 0))
    assert [one.num_rows for one in found] == [8_333, 8_333, 8_334], "the parts are about equal"
    assert pa.concat_batches(found)["offset"].to_pylist() == list(range(25_000))


def test_batches_are_decoded_together_but_not_without_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[int]] = []

    def noted(
        octets: bytes, sections: Sequence[Section], start: int, end: int, layout: Layout
    ) -> pa.RecordBatch:
        seen.append([section.header.base_offset for section in sections])
        return record_batch(octets, sections, start, end, layout)

    monkeypatch.setattr("leadline_client.columnar.decode.record_batch", noted)
    large = [stored([OutgoingRecord(bytes(3 << 20), timestamp=0)], base) for base in range(5)]
    assert len(list(decode(b"".join(large), 0, 5, ALL, "t", 0))) == 5
    assert seen == [[0, 1], [2, 3], [4]], "8 MiB"
    seen.clear()
    many = [stored([OutgoingRecord(b"", timestamp=0)] * 30_000, 30_000 * n) for n in range(3)]
    decoded = decode(b"".join(many), 0, 90_000, ALL, "t", 0)
    assert sum(one.num_rows for one in decoded) == 90_000
    assert seen == [[0, 30_000], [60_000]], "65,536 records"


def test_what_is_outside_of_the_range_is_not_even_checked() -> None:
    broken = bytearray(stored([OutgoingRecord(b"v", timestamp=0)], 0))
    broken[-1] ^= 1
    data = bytes(broken) + stored([OutgoingRecord(b"w", timestamp=0)], 1)
    assert [row["value"] for row in rows_of(data, 1, 2)] == [b"w"]


@given(st.binary(max_size=2_000))
def test_folding_is_the_checksum(data: bytes) -> None:
    assert folded_crc32c(data) == google_crc32c.value(data)


@pytest.mark.parametrize("size", [108_431, 108_432, 108_433, 300_000, 1 << 20])
def test_folding_is_the_checksum_of_large_batches(size: int) -> None:
    data = bytes(index * index % 251 for index in range(size))
    assert folded_crc32c(data) == crc32c(data) == google_crc32c.value(data)


def test_the_checksum_is_chosen_by_name() -> None:
    assert checksum("python") is folded_crc32c
    assert checksum("auto") is checksum("fast") is crc32c
