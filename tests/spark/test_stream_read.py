"""Streams from a live cluster: starts, limits, crashes, idleness."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from leadline_client.payloads import OutgoingRecord
from leadline_spark.read.progress import offsets_behind_latest
from tests.spark.live import Live
from tests.support.services.up import until

Row = tuple[int, int, int, str]
"""Batch, partition, offset, value."""
NEVER_STARTED = "Python worker failed to connect back"


class Sink:
    """Keeps the rows of all micro-batches, on the driver."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.fail_on: int | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if batch == self.fail_on:
            raise RuntimeError("planned crash")
        found = frame.selectExpr("partition", "offset", "CAST(value AS STRING)").collect()
        self.rows += [(batch, row[0], row[1], row[2]) for row in found]

    @property
    def values(self) -> list[str]:
        return [row[3] for row in sorted(self.rows, key=lambda row: row[1:3])]

    def batches(self) -> list[int]:
        counts: dict[int, int] = {}
        for batch, *_ in self.rows:
            counts[batch] = counts.get(batch, 0) + 1
        return [counts[batch] for batch in sorted(counts)]


def stream(spark: SparkSession, live: Live, topic: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("leadline").option("bootstrap", live.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def writing(frame: DataFrame, sink: Callable[[DataFrame, int], None], at: Path) -> DataStreamWriter:
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(at))


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def run_to_the_end(writer: DataStreamWriter) -> None:
    """Run a query until it has read all; start it again where Spark's driver could not begin it."""
    for attempts_left in (2, 1, 0):
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        except StreamingQueryException as failure:
            # Spark gives the Python process that plans a stream 10 s to start, and no setting
            # changes that: a busy machine may need longer. Nothing was read before that.
            if NEVER_STARTED not in str(failure) or not attempts_left:
                raise
        else:
            return


def records(count: int, first: int = 0) -> list[OutgoingRecord]:
    return [OutgoingRecord(b"v%d" % n, None) for n in range(first, first + count)]


def names(count: int, first: int = 0) -> list[str]:
    return [f"v{n}" for n in range(first, first + count)]


def test_a_streaming_job_written_for_kafka(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    """The example of Spark's Kafka guide; only format and address are others."""
    live.topic(topic, partitions=2)
    live.send(topic, [OutgoingRecord(b"v0", b"k0")], partition=0)

    df = (
        spark.readStream.format("leadline")
        .option("kafka.bootstrap.servers", live.bootstrap.replace("http://", ""))
        .option("subscribePattern", topic.replace("written", "w.*n"))
        .option("startingOffsets", "earliest")
        .load()
    )
    seen = df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    query = seen.writeStream.format("memory").queryName("seen").outputMode("append").start()
    try:
        until(lambda: spark.table("seen").count() == 1, "the first record is seen")
        live.send(topic, [OutgoingRecord(b"v1", b"k1")], partition=1)
        until(lambda: spark.table("seen").count() == 2, "the second record is seen")
    finally:
        query.stop()

    assert {tuple(row) for row in spark.table("seen").collect()} == {("k0", "v0"), ("k1", "v1")}
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )


def test_available_now_keeps_the_limit_and_ends(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic, partitions=2)
    live.send(topic, records(90), partition=0)
    live.send(topic, records(60, first=90), partition=1)
    sink = Sink()
    frame = stream(spark, live, topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")

    run_to_the_end(writing(frame, sink, tmp_path))

    assert sink.batches() == [60, 60, 30]
    assert sink.values == names(150)

    live.send(topic, records(10, first=150), partition=1)
    run_to_the_end(writing(frame, sink, tmp_path))

    assert sink.batches() == [60, 60, 30, 10]
    assert sink.values == names(160)


def test_bytes_limit_a_batch_by_what_is_stored(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic)
    big = [OutgoingRecord(b"v%d " % n + b"." * 1_000, None) for n in range(40)]
    live.send(topic, big, batch_bytes=1)
    sink = Sink()
    frame = stream(spark, live, topic, startingOffsets="earliest", maxBytesPerTrigger="11000")

    run_to_the_end(writing(frame, sink, tmp_path))

    assert sum(sink.batches()) == 40
    # A stored record takes a little more than its thousand bytes.
    assert sink.batches()[:3] == [10, 10, 10]


def test_a_crash_of_the_first_batch_loses_nothing_that_came_after_latest(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic)
    live.send(topic, records(20))
    sink = Sink()
    frame = stream(spark, live, topic, startingOffsets="latest")
    sink.fail_on = 0

    crashed = writing(frame, sink, tmp_path).start()
    live.send(topic, records(20, first=20))
    with pytest.raises(StreamingQueryException, match="planned crash"):
        crashed.awaitTermination(60)
    live.send(topic, records(20, first=40))
    sink.fail_on = None
    before = json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[2])
    with running(writing(frame, sink, tmp_path)):
        live.send(topic, records(20, first=60))
        first = before[topic]["0"]
        until(lambda: len(sink.rows) >= 80 - first, "all records since the start are read")

    assert sink.values == names(80 - first, first=first)


def test_a_crash_inside_a_batch_repeats_the_same_batch(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic)
    live.send(topic, records(30))
    sink = Sink()
    frame = stream(spark, live, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    sink.fail_on = 1

    with pytest.raises(StreamingQueryException, match="planned crash"):
        writing(frame, sink, tmp_path).trigger(availableNow=True).start().awaitTermination(60)
    live.send(topic, records(5, first=30))
    sink.fail_on = None
    run_to_the_end(writing(frame, sink, tmp_path))

    assert sink.values == names(35)
    assert sink.batches() == [10, 10, 10, 5]


def test_a_recreated_topic_is_a_loss(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic)
    live.send(topic, records(5))
    sink = Sink()
    frame = stream(spark, live, topic, startingOffsets="earliest")
    run_to_the_end(writing(frame, sink, tmp_path))
    live.delete(topic)
    live.topic(topic)
    live.send(topic, records(9, first=100))

    with pytest.raises(StreamingQueryException, match="LEADLINE_TOPIC_RECREATED"):
        run_to_the_end(writing(frame, sink, tmp_path))
    frame = stream(spark, live, topic, startingOffsets="earliest", failOnDataLoss="false")
    run_to_the_end(writing(frame, sink, tmp_path))

    assert sorted(row[3] for row in sink.rows) == sorted(names(5) + names(9, first=100))


def test_progress_is_shown_to_spark_and_to_a_group(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic, partitions=2)
    live.send(topic, records(8), partition=0)
    sink = Sink()
    frame = stream(
        spark, live, topic, startingOffsets="earliest", maxOffsetsPerTrigger="5", commitGroup=topic
    )

    def committed() -> list[dict[str, Any]]:
        return live.group_offsets(topic)

    with running(writing(frame, sink, tmp_path)) as query:
        until(lambda: len(sink.rows) == 8, "all is read")
        until(lambda: any(row["offset"] == 8 for row in committed()), "the group shows progress")
        until(lambda: lags(query)[-1:] == [0.0], "nothing is behind")
        assert 3.0 in lags(query)
    assert {row["metadata"] for row in committed()} == {"spark"}


def lags(query: StreamingQuery) -> list[float]:
    found = [offsets_behind_latest(progress) for progress in query.recentProgress]
    return [lag["maxOffsetsBehindLatest"] for lag in found if lag is not None]


def test_an_idle_stream_asks_seldom(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic)
    live.send(topic, records(3))
    # The leader is asked: it needs no other broker's answer, so all requests are the stream's.
    leader = live.cluster.url(live.leader_of(topic, 0))
    frame = stream(spark, live, topic, startingOffsets="earliest", bootstrap=leader)
    sink = Sink()
    routes = ("/v1/metadata", "/v1/offsets")

    with running(writing(frame, sink, tmp_path)) as query:
        until(lambda: len(sink.rows) == 3, "all is read")
        before, began = live.requests(*routes), time.monotonic()
        until(lambda: time.monotonic() - began >= 6.0, "six seconds are over")
        asked, seconds = live.requests(*routes) - before, time.monotonic() - began
        assert query.isActive

    assert 0 < asked <= 2 * seconds + 1
