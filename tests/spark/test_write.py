"""Writes to a live cluster, with the columns of Spark's Kafka sink."""

from __future__ import annotations

import inspect
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program has it
from pyspark.sql.datasource import WriterCommitMessage

import leadline_spark
from leadline_client.murmur2 import partition_for_key
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options
from leadline_spark.source import LeadlineDataSource
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.write_task import write_task
from tests.spark.gates import Gate, until
from tests.spark.live import Live
from tests.spark.logs import log_of, values_of


@pytest.fixture(autouse=True)
def active(spark: SparkSession) -> None:
    """Make the session the active one: Spark looks for sinks in Python in no other.

    It is by itself, unless the program has forked: the child shuts the connection to Java, and what
    comes on a new one is another thread there. Starting a cluster forks.
    """
    spark.createDataFrame([(1,)], "n int")


def write(frame: DataFrame, live: Live, **options: Any) -> None:
    writer = frame.write.format("leadline").option("bootstrap", live.bootstrap)
    writer.options(**options).mode("append").save()


def test_a_batch_job_written_for_kafka(spark: SparkSession, live: Live, topic: str) -> None:
    """The example of Spark's Kafka guide; only format and address are others."""
    live.topic(topic, partitions=3)
    df = spark.range(20).selectExpr("CAST(id AS STRING) AS key", "concat('v', id) AS value")

    (
        df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .write.format("leadline")
        .option("kafka.bootstrap.servers", live.bootstrap.replace("http://", ""))
        .option("topic", topic)
        .mode("append")
        .save()
    )

    for number in range(3):
        found = {(one.key, one.value) for one in log_of(live, topic, number)}
        keys = [b"%d" % n for n in range(20) if partition_for_key(b"%d" % n, 3) == number]
        assert found == {(key, b"v" + key) for key in keys}


def test_a_stream_job_written_for_kafka(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    source, target = live.topic(topic, partitions=2), live.topic(f"{topic}-copy", partitions=2)
    write(spark.range(50).selectExpr("string(id) AS key", "string(id) AS value"), live, topic=topic)

    ds = (
        spark.readStream.format("leadline")
        .option("kafka.bootstrap.servers", live.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(key AS STRING)", "upper(CAST(value AS STRING)) AS value")
        .writeStream.format("leadline")
        .option("kafka.bootstrap.servers", live.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    ds.awaitTermination()

    assert sorted(values_of(live, target, 2)) == sorted(b"%d" % n for n in range(50))  # type: ignore[type-var]  # none is null


def test_every_column_of_the_kafka_sink(spark: SparkSession, live: Live, topic: str) -> None:
    live.topic(topic, partitions=3)
    other = live.topic(f"{topic}-other")
    rows = [
        ("k", "text", [("h", b"1"), ("h", None)], topic, 2),
        ("k", None, None, topic, 2),
        (None, "keyless", [], other, None),
    ]
    frame = spark.createDataFrame(
        rows,
        "key string, value string, headers array<struct<key:string,value:binary>>, topic string, "
        "partition int",
    ).coalesce(1)

    write(frame, live, compression="zstd")

    assert [(one.key, one.value, one.headers) for one in log_of(live, topic, 2)] == [
        (b"k", b"text", (("h", b"1"), ("h", None))),
        (b"k", None, ()),
    ]
    assert [(one.key, one.value) for one in log_of(live, other)] == [(None, b"keyless")]

    write(frame.where("topic like '%-other'"), live, topic=topic)

    found = [one for number in range(3) for one in log_of(live, topic, number)]
    assert [one.value for one in found if one.key is None] == [b"keyless"], "the option wins"


def test_times_are_kept_where_that_is_asked(spark: SparkSession, live: Live, topic: str) -> None:
    live.topic(topic)
    frame = spark.range(2).select(
        F.lit("v").alias("value"), F.timestamp_millis(F.lit(1_234)).alias("timestamp")
    )

    write(frame, live, topic=topic, keepTimestamps="true")
    write(frame, live, topic=topic)

    times = [one.timestamp for one in log_of(live, topic)]
    assert times[:2] == [1_234, 1_234]
    assert all(time > 1_600_000_000_000 for time in times[2:])


@pytest.mark.parametrize(
    ("expression", "options", "told"),
    [
        ("id AS value", {"topic": "t"}, "LEADLINE_SCHEMA_INVALID.*value is bigint"),
        ("'v' AS other", {"topic": "t"}, "LEADLINE_SCHEMA_INVALID.*value"),
        ("'v' AS value", {}, "LEADLINE_OPTION_MISSING.*topic"),
        ("'v' AS value", {"topic": "t", "txnAppId": "a"}, "LEADLINE_OPTION_CONFLICT.*txnVersion"),
        ("'v' AS value", {"topics": "t"}, "LEADLINE_OPTION_UNKNOWN.*Did you mean topic"),
        ("'v' AS value", {"topic": "t", "acks": "most"}, "LEADLINE_OPTION_INVALID.*acks"),
        ("'v' AS value, 99 AS partition", {"topic": "TOPIC"}, "LEADLINE_ROW_INVALID.*partition 99"),
        ("'v' AS value", {"topic": "none", "deliveryTimeoutMs": "500"}, "LEADLINE_TOPIC_UNKNOWN"),
    ],
)
def test_what_cannot_be_written_is_refused_with_a_code(
    spark: SparkSession, live: Live, topic: str, expression: str, options: dict[str, str], told: str
) -> None:
    if options.get("topic") == "TOPIC":
        options = {"topic": live.topic(topic)}
    with pytest.raises(PySparkException, match=f"(?s){told}"):
        write(spark.range(1).selectExpr(*expression.split(", ")), live, **options)


@pytest.mark.parametrize(
    ("mode", "told"),
    [("overwrite", "only appended to"), (None, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE")],
)
def test_topics_are_appended_to_only(
    spark: SparkSession, live: Live, mode: str | None, told: str
) -> None:
    frame = spark.range(1).selectExpr("'v' AS value")
    writer = frame.write.format("leadline").options(bootstrap=live.bootstrap, topic="any")
    with pytest.raises(PySparkException, match=told):
        writer.mode(mode).save()


@pytest.mark.parametrize("once", [{}, {"txnAppId": "a", "txnVersion": "1"}], ids=["least", "once"])
def test_a_leader_that_is_killed_in_the_middle_costs_nothing(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path, once: dict[str, str]
) -> None:
    live.topic(topic)
    leader = live.leader_of(topic, 0)
    gate = Gate(tmp_path, row=25_000)
    frame = spark.range(0, 30_000, 1, numPartitions=1).select(
        F.format_string("%064d", gate.column()).alias("value")
    )

    def kill() -> None:
        gate.wait()
        until(lambda: bool(log_of(live, topic)) or staged(live, leader))
        live.kill(leader)
        gate.open()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        write(frame, live, topic=topic, **once)
        killing.result()
    try:
        # Not even doubled, as Spark did not repeat the task: the numbers of batches saw to that.
        assert values_of(live, topic, 1) == [b"%064d" % n for n in range(30_000)]
    finally:
        live.restart(leader)


def test_the_sink_stands_on_nothing_that_is_internal_to_spark() -> None:
    """Trap 12: local properties such as `streaming.sql.batchId` are visible in tasks."""
    for path in Path(leadline_spark.__file__).parent.rglob("*.py"):
        assert "getLocalProperty" not in path.read_text(), path


def test_writers_are_asked_for_by_names_that_spark_passes() -> None:
    """Trap 5: by position to tasks, by keyword at the commit."""
    for method in (LeadlineDataSource.writer, LeadlineDataSource.streamWriter):
        assert list(inspect.signature(method).parameters) == ["self", "schema", "overwrite"]


def test_every_task_returns_a_message_that_can_be_sent(live: Live, topic: str) -> None:
    """Trap 4: None fails the write. A task without rows has one too."""
    live.topic(topic)
    options = Options(OPTIONS, {"bootstrap": live.bootstrap, "topic": topic})
    settings = pickle.loads(pickle.dumps(SinkSettings.of(options, streaming=False)))  # noqa: S301 - our own settings and message
    message = write_task(settings, iter(()))
    assert isinstance(message, WriterCommitMessage)
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301 - our own settings and message


def staged(live: Live, broker: str) -> bool:
    """Tell whether anything is staged with a broker."""
    url = live.cluster.url(broker)
    page = ClusterClient(Connection((url,))).call("GET", url, "/metrics").body.decode()
    found = re.search(r"^leadline_\w*staged_bytes\S* (\S+)$", page, re.MULTILINE)
    return found is not None and float(found[1]) > 0
