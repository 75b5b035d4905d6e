"""Exactly once: whatever dies in the middle, a restart leaves nothing lost and nothing doubled."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leadline_client.payloads import OutgoingRecord
from tests.spark.dying import PAUSE, PLACES, DyingSink
from tests.spark.gates import until
from tests.spark.live import Live
from tests.spark.logs import values_of

PARTITIONS = 2
ROWS = 90


@pytest.fixture(autouse=True)
def active(spark: SparkSession) -> None:
    """Make the session the active one, with a sink that dies."""
    spark.createDataFrame([(1,)], "n int")
    spark.dataSource.register(DyingSink)


@pytest.fixture
def source(live: Live, topic: str) -> str:
    """A topic with what is to be copied."""
    name = live.topic(f"from-{topic[-40:]}", partitions=PARTITIONS)
    for number in range(PARTITIONS):
        records = [OutgoingRecord(b"%d-%d" % (number, n), b"%d" % n) for n in range(ROWS // 2)]
        live.send(name, records, partition=number)
    return name


def copied(spark: SparkSession, live: Live, source: str) -> DataFrame:
    """Return what is in the source, in three micro-batches."""
    reader = spark.readStream.format("leadline").option("bootstrap", live.bootstrap)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", str(ROWS // 3)).load().select("key", "value")


def copy(
    frame: DataFrame, live: Live, target: str, folder: Path, *, dying_at: str | None = None
) -> None:
    """Run the copy to its end, or to its death."""
    writer = frame.writeStream.format("leadline" if dying_at is None else "dying")
    if dying_at is not None:
        writer = writer.options(dieat=dying_at, folder=str(folder))
    query = (
        writer.option("bootstrap", live.bootstrap)
        .option("topic", target)
        .option("txnAppId", f"copy-to-{target}")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def all_once() -> Counter[bytes | None]:
    return Counter(b"%d-%d" % (number, n) for number in range(PARTITIONS) for n in range(ROWS // 2))


@pytest.mark.parametrize("place", PLACES)
def test_a_stream_that_dies_and_goes_on(
    spark: SparkSession, live: Live, topic: str, source: str, tmp_path: Path, place: str
) -> None:
    target = live.topic(f"to-{topic[-40:]}", partitions=PARTITIONS)
    frame = copied(spark, live, source)

    with pytest.raises(PySparkException):
        copy(frame, live, target, tmp_path, dying_at=place)
    before = Counter(values_of(live, target, PARTITIONS))
    assert before < all_once(), "it died in the middle"
    copy(frame, live, target, tmp_path)

    assert Counter(values_of(live, target, PARTITIONS)) == all_once()


def test_a_leader_that_dies_with_what_was_staged(
    spark: SparkSession, live: Live, topic: str, source: str, tmp_path: Path
) -> None:
    target = live.topic(topic, partitions=PARTITIONS)
    leader = live.leader_of(target, 0)

    def kill() -> None:
        until((tmp_path / "reached").exists)
        live.kill(leader)
        (tmp_path / "open").touch()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        with pytest.raises(PySparkException, match="LEADLINE_STAGED_LOST"):
            copy(copied(spark, live, source), live, target, tmp_path, dying_at=PAUSE)
        killing.result()
    try:
        copy(copied(spark, live, source), live, target, tmp_path)
        assert Counter(values_of(live, target, PARTITIONS)) == all_once()
    finally:
        live.restart(leader)


def test_a_batch_write_with_a_number_happens_once(
    spark: SparkSession, live: Live, topic: str
) -> None:
    live.topic(topic, partitions=PARTITIONS)
    frame = spark.range(20).selectExpr("string(id) AS key", "string(id) AS value")

    for version in ("3", "3", "4", "3"):
        writer = frame.write.format("leadline").option("bootstrap", live.bootstrap)
        writer = writer.option("topic", topic).option("txnAppId", "nightly")
        writer.option("txnVersion", version).mode("append").save()

    assert Counter(values_of(live, topic, PARTITIONS)) == {b"%d" % n: 2 for n in range(20)}


def test_nothing_staged_is_seen_before_its_commit(
    spark: SparkSession, live: Live, topic: str
) -> None:
    live.topic(topic)
    frame = spark.range(20).selectExpr(
        "string(id) AS value", "if(id = 19, assert_true(false), NULL) AS failing"
    )
    writer = frame.write.format("leadline").option("bootstrap", live.bootstrap)
    writer = writer.option("topic", topic).option("txnAppId", topic).option("txnVersion", "0")
    with pytest.raises(PySparkException):
        writer.mode("append").save()

    assert values_of(live, topic, 1) == []
