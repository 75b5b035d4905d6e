"""Batch reads from a live cluster, with the options and columns of Spark's Kafka source."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program has it

from leadline_client.payloads import OutgoingRecord
from tests.spark.live import Live

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int>"
)
EPOCH_MS = 1_700_000_000_000


def records(count: int, first: int = 0) -> list[OutgoingRecord]:
    return [
        OutgoingRecord(b"v%d" % n, b"k%d" % n, (("h", b"%d" % n),), EPOCH_MS + n * 1_000)
        for n in range(first, first + count)
    ]


def load(spark: SparkSession, live: Live, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("leadline").option("bootstrap", live.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def values(frame: DataFrame) -> list[str]:
    rows = frame.orderBy("partition", "offset").selectExpr("CAST(value AS STRING)").collect()
    return [row[0] for row in rows]


def test_a_job_written_for_kafka(spark: SparkSession, live: Live, topic: str) -> None:
    """The example of Spark's Kafka guide; only format and address are others."""
    live.topic(topic, partitions=2)
    live.send(topic, records(2), partition=0)
    live.send(topic, records(1, first=2), partition=1)

    df = (
        spark.read.format("leadline")
        .option("kafka.bootstrap.servers", live.bootstrap.replace("http://", ""))
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )

    assert df.drop("headers").schema.simpleString() == KAFKA_SCHEMA
    assert df.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    rows = df.orderBy("partition", "offset").collect()
    assert [bytes(row.key) for row in rows] == [b"k0", b"k1", b"k2"]
    assert [bytes(row.value) for row in rows] == [b"v0", b"v1", b"v2"]
    assert [(row.topic, row.partition, row.offset) for row in rows] == [
        (topic, 0, 0),
        (topic, 0, 1),
        (topic, 1, 0),
    ]
    times = df.select(F.unix_millis("timestamp"), "partition", "offset").orderBy(
        "partition", "offset"
    )
    assert [row[0] for row in times.collect()] == [EPOCH_MS, EPOCH_MS + 1_000, EPOCH_MS + 2_000]
    assert {row.timestampType for row in rows} == {0}
    assert [(row.headers[0].key, bytes(row.headers[0].value)) for row in rows] == [
        ("h", b"0"),
        ("h", b"1"),
        ("h", b"2"),
    ]
    strings = df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").where("key = 'k1'")
    assert [tuple(row) for row in strings.collect()] == [("k1", "v1")]


def test_all_actions_on_a_frame_see_the_same_records(
    spark: SparkSession, live: Live, topic: str
) -> None:
    live.topic(topic)
    live.send(topic, records(5))
    pinned = load(spark, live, topic)
    planned = load(spark, live, topic, snapshot="action")

    counts = []
    for _ in range(2):
        live.send(topic, records(3))
        counts.append((pinned.count(), pinned.where("offset >= 0").count(), planned.count()))

    assert counts == [(5, 5, 8), (5, 5, 8)]


def test_offsets_for_each_partition(spark: SparkSession, live: Live, topic: str) -> None:
    live.topic(topic, partitions=2)
    live.send(topic, records(6), partition=0)
    live.send(topic, records(6, first=10), partition=1)

    frame = load(
        spark,
        live,
        topic,
        startingOffsets=json.dumps({topic: {"0": 4, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 2}}),
    )

    assert values(frame) == ["v4", "v5", "v10", "v11"]

    reader = spark.read.format("leadline").option("bootstrap", live.bootstrap)
    single = reader.option("assign", json.dumps({topic: [1]})).load()
    assert values(single) == [f"v{n}" for n in range(10, 16)]


def test_times_as_bounds(spark: SparkSession, live: Live, topic: str) -> None:
    live.topic(topic)
    live.send(topic, records(6))

    between = load(
        spark, live, topic, startingTimestamp=EPOCH_MS + 1_500, endingTimestamp=EPOCH_MS + 4_000
    )
    each = load(
        spark,
        live,
        topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": EPOCH_MS + 4_001}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": EPOCH_MS + 999_000}}),
    )

    assert values(between) == ["v2", "v3"]
    assert values(each) == ["v5"]
    with pytest.raises(PySparkException, match="LEADLINE_OFFSET_NOT_FOUND"):
        load(spark, live, topic, startingTimestamp=EPOCH_MS + 999_000).count()


def test_ranges_are_split_and_nothing_is_read_twice(
    spark: SparkSession, live: Live, topic: str
) -> None:
    live.topic(topic)
    live.send(topic, records(100), batch_bytes=200)

    frame = load(spark, live, topic, minPartitions=4)

    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == [f"v{n}" for n in range(100)]


def test_an_empty_range_is_read_as_nothing(spark: SparkSession, live: Live, topic: str) -> None:
    """No tasks: Spark makes one partition of nothing, which is read all the same."""
    live.topic(topic)

    assert load(spark, live, topic).collect() == []


def test_columns_are_read_in_the_order_that_was_asked_for(
    spark: SparkSession, live: Live, topic: str
) -> None:
    live.topic(topic)
    live.send(topic, [OutgoingRecord(None, b"k"), OutgoingRecord(b"v", None)])

    frame = load(spark, live, topic, columns="value,offset,key", includeLeaderEpoch="true")

    assert frame.columns == ["value", "offset", "key", "leaderEpoch"]
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [
        (None, 0, b"k", 0),
        (b"v", 1, None, 0),
    ]


def test_filters_choose_what_is_read(spark: SparkSession, live: Live, topic: str) -> None:
    live.topic(topic, partitions=2)
    live.send(topic, records(6), partition=0)
    live.send(topic, records(6), partition=1)
    frame = load(spark, live, topic, pushFilters="true")

    exact = frame.where("partition = 1 AND offset >= 2 AND offset < 4")
    since = datetime.fromtimestamp((EPOCH_MS + 4_000) / 1_000, UTC)
    late = frame.where(F.col("timestamp") >= F.lit(since))

    assert values(exact) == ["v2", "v3"]
    assert exact.rdd.getNumPartitions() == 1
    assert values(late) == ["v4", "v5", "v4", "v5"]
    assert "Filter" not in exact._jdf.queryExecution().optimizedPlan().toString()
    assert "Filter" in late._jdf.queryExecution().optimizedPlan().toString()


def test_sql_sees_the_format(spark: SparkSession, live: Live, topic: str) -> None:
    live.topic(topic)
    live.send(topic, records(3))

    spark.sql(
        "CREATE TEMPORARY VIEW by_sql USING leadline OPTIONS "
        f"(bootstrap '{live.bootstrap}', subscribe '{topic}')"
    )

    assert spark.sql("SELECT max(offset) FROM by_sql").collect()[0][0] == 2
    spark.catalog.dropTempView("by_sql")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"startingOffsets": "latest"}, "LEADLINE_OPTION_INVALID"),
        ({"endingOffsets": "earliest"}, "LEADLINE_OPTION_INVALID"),
        ({"startingOffsets": '{"TOPIC":{"0":0,"7":0}}'}, "LEADLINE_OFFSETS_INVALID"),
        ({"endingOffsets": '{"TOPIC":{"0":99}}'}, "LEADLINE_DATA_LOSS"),
        ({"failOnDataLos": "false"}, "Did you mean failOnDataLoss"),
        ({"assign": '{"TOPIC":[0]}'}, "LEADLINE_OPTION_CONFLICT"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, live: Live, refusals: str, options: dict[str, str], code: str
) -> None:
    given = {name: text.replace("TOPIC", refusals) for name, text in options.items()}

    with pytest.raises(PySparkException, match=code):
        load(spark, live, refusals, **given).count()


@pytest.fixture(scope="module")
def refusals(live: Live) -> str:
    return live.topic("refusals")


def test_defect_18_spark_replica_any_reads_from_followers(
    spark: SparkSession, live: Live, topic: str
) -> None:
    route = "/v1/topics/{topic}/partitions/{partition}/records"
    live.topic(topic)
    live.send(topic, records(100))
    live.until_followers_have(topic, 100)
    before = live.broker_requests(route)

    rows = values(load(spark, live, topic, replica="any"))

    assert rows == [f"v{n}" for n in range(100)]
    after = live.broker_requests(route)
    asked = {name for name in after if after[name] > before[name]}
    assert asked
    assert live.leader_of(topic, 0) not in asked
