"""Assigning rows to partitions without Spark: partition, order, and refusals."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from leadline_client.columnar.encode import RECORD_OVERHEAD
from leadline_client.murmur2 import partition_for_key
from leadline_spark.codec.columns import HEADERS
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.write.records import RowPartitioner, check_schema

KEYS = st.none() | st.binary(max_size=20)


def sorter(count: int, **settings: object) -> RowPartitioner:
    given_ = {"topic": "t", "keep_timestamps": False, "batch_bytes": 200, "first": 0, **settings}
    return RowPartitioner(lambda _: count, **given_)  # type: ignore[arg-type]  # a bag of settings


def rows(**columns: Sequence[object]) -> pa.RecordBatch:
    types = {"partition": pa.int32(), "topic": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
    arrays = {
        name: pa.array(values, types.get(name, pa.binary())) for name, values in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def placed(found: RowPartitioner, batch: pa.RecordBatch) -> dict[tuple[str, int], list[bytes]]:
    return {
        (topic_partition.topic, topic_partition.partition): records.value.to_pylist()
        for topic_partition, records in found.partition(batch)
    }


@given(st.lists(KEYS, max_size=60), st.integers(1, 8))
def test_keys_decide_and_order_is_kept(keys: list[bytes | None], count: int) -> None:
    values = [b"%d" % n for n in range(len(keys))]
    found = placed(sorter(count), rows(key=keys, value=values))
    expected: dict[tuple[str, int], list[bytes]] = {}
    for key, value in zip(keys, values, strict=True):
        if key is not None:
            topic_partition = ("t", partition_for_key(key, count))
            expected.setdefault(topic_partition, []).append(value)
    keyed = {value for some in expected.values() for value in some}
    kept = {
        topic_partition: [one for one in some if one in keyed]
        for topic_partition, some in found.items()
    }
    assert {topic_partition: some for topic_partition, some in kept.items() if some} == expected
    assert sorted(value for some in found.values() for value in some) == sorted(values)
    for some in found.values():
        assert [int(one) for one in some] == sorted(int(one) for one in some)


def test_keyless_records_stay_together_until_a_batch_is_full() -> None:
    size = 100 - RECORD_OVERHEAD
    batch = rows(value=[b"%d" % n + bytes(size - 1) for n in range(5)])
    first = sorter(3, first=2)
    found = {
        topic_partition: [one[:1] for one in some]
        for topic_partition, some in placed(first, batch).items()
    }
    assert found == {("t", 2): [b"0", b"1"], ("t", 0): [b"2", b"3"], ("t", 1): [b"4"]}
    again = {
        topic_partition: [one[:1] for one in some]
        for topic_partition, some in placed(first, batch).items()
    }
    assert again == {("t", 1): [b"0"], ("t", 2): [b"1", b"2"], ("t", 0): [b"3", b"4"]}


def test_the_column_wins_over_the_key_and_null_leaves_it_to_the_key() -> None:
    found = placed(sorter(3), rows(key=[b"a", b"a"], value=[b"1", b"2"], partition=[2, None]))
    assert found[("t", 2)][0] == b"1"
    assert b"2" in found[("t", partition_for_key(b"a", 3))]


def test_the_option_wins_over_the_column_topic() -> None:
    batch = rows(value=[b"1", b"2", b"3"], topic=["x", "y", "x"])
    assert placed(sorter(1), batch) == {("t", 0): [b"1", b"2", b"3"]}
    assert placed(sorter(1, topic=None), batch) == {("x", 0): [b"1", b"3"], ("y", 0): [b"2"]}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (rows(value=[b"1"], topic=[None]), "no topic"),
        (rows(value=[b"1"], topic=["x"], partition=[3]), "partition 3, but x has 3"),
        (rows(value=[b"1"], topic=["x"], partition=[-1]), "partition -1"),
    ],
)
def test_rows_that_go_nowhere_are_refused(batch: pa.RecordBatch, message: str) -> None:
    with pytest.raises(LeadlineSparkError, match=f"LEADLINE_ROW_INVALID.*{message}"):
        placed(sorter(3, topic=None), batch)


def test_timestamps_are_written_on_demand_in_ms() -> None:
    batch = rows(value=[b"1", b"2"], timestamp=[1_234_567, None])
    ((_, plain),) = sorter(1).partition(batch)
    ((_, kept),) = sorter(1, keep_timestamps=True).partition(batch)
    assert plain.timestamps is None
    assert kept.timestamps is not None
    assert kept.timestamps.to_pylist() == [1_234, None]


@pytest.mark.parametrize("bad", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_name_is_refused(bad: object) -> None:
    good = [{"key": "k", "value": None}]

    def with_headers(*headers: object) -> pa.RecordBatch:
        values = pa.array([b"v"] * len(headers))
        return pa.RecordBatch.from_pydict({"value": values, "headers": pa.array(headers, HEADERS)})

    assert placed(sorter(1), with_headers(good, None, [])) == {("t", 0): [b"v"] * 3}
    with pytest.raises(LeadlineSparkError, match="LEADLINE_ROW_INVALID"):
        placed(sorter(1), with_headers(good, [bad]))


def test_times_before_1970_are_refused() -> None:
    batch = rows(value=[b"1", b"2"], timestamp=[1_234_567, -1_000])
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_ROW_INVALID.*-1 ms"):
        placed(sorter(1, keep_timestamps=True), batch)


PLAIN = {"key": StringType(), "value": BinaryType()}
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@pytest.mark.parametrize(
    ("columns", "topic", "code"),
    [
        ({"value": BinaryType()}, "t", None),
        ({**PLAIN, "topic": StringType(), "partition": IntegerType()}, None, None),
        ({**PLAIN, "headers": ArrayType(HEADER), "unrelated": LongType()}, "t", None),
        ({"key": StringType()}, "t", "LEADLINE_SCHEMA_INVALID"),
        ({"value": IntegerType()}, "t", "LEADLINE_SCHEMA_INVALID"),
        ({**PLAIN, "partition": LongType()}, "t", "LEADLINE_SCHEMA_INVALID"),
        ({**PLAIN, "headers": ArrayType(StringType())}, "t", "LEADLINE_SCHEMA_INVALID"),
        (PLAIN, None, "LEADLINE_OPTION_MISSING"),
    ],
)
def test_schemas_are_those_of_the_kafka_sink(
    columns: dict[str, DataType], topic: str | None, code: str | None
) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    if code is None:
        check_schema(schema, topic)
        return
    with pytest.raises(LeadlineSparkError, match=code):
        check_schema(schema, topic)


@pytest.mark.parametrize(("name", "by_option"), [("timestamp", False), ("topic", True)])
def test_a_column_that_is_not_read_may_be_of_any_type(name: str, by_option: bool) -> None:
    """The Kafka sink has no column timestamp, and the option topic goes before the column."""
    fields = [StructField("value", BinaryType())] + [StructField(name, LongType())] * 2

    check_schema(StructType(fields), "t")
    with pytest.raises(LeadlineSparkError, match="There are 2 columns"):
        check_schema(StructType(fields), None if by_option else "t", keep_timestamps=True)
    with pytest.raises(LeadlineSparkError, match=f"The column {name} is bigint"):
        check_schema(StructType(fields[:2]), None if by_option else "t", keep_timestamps=True)


def test_a_column_is_there_once() -> None:
    twice = StructType([StructField("value", BinaryType())] * 2)

    with pytest.raises(LeadlineSparkError, match=r"SCHEMA_INVALID.*2 columns value"):
        check_schema(twice, "t")
