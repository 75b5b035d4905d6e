"""Exactly once: whatever dies in the middle, a restart leaves nothing lost and nothing doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leadline_client.payloads import OutgoingRecord
from tests.spark.dying import AFTER, BEFORE, BETWEEN, PAUSE, TASK, DyingSink
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


@pytest.mark.parametrize(
    "place",
    [
        TASK,
        pytest.param(BETWEEN, marks=pytest.mark.slow),
        pytest.param(AFTER, marks=pytest.mark.slow),
        pytest.param(BEFORE, marks=pytest.mark.soak),
    ],
)
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


def test_a_leader_that_dies_between_the_tasks_and_the_commit_costs_nothing(
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
        copy(copied(spark, live, source), live, target, tmp_path, dying_at=PAUSE)
        killing.result()
    try:
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


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_drivers_and_leaders_are_killed_until_all_is_copied(
    live: Live, topic: str, tmp_path: Path
) -> None:
    """Run it by: pytest -m soak tests/spark/test_write_once.py (about three minutes)."""
    count, random = 40_000, Random(4)
    source = live.topic(topic, partitions=PARTITIONS)
    target = live.topic("copy-of-all", partitions=PARTITIONS)
    live.send(source, (OutgoingRecord(b"%d" % n, b"%d" % n) for n in range(count)))
    words = [live.bootstrap, source, target, str(tmp_path)]
    command = [sys.executable, "-m", "tests.spark.copier", *words]

    for batch in (1, 4, 8, 12):
        commit = tmp_path / "checkpoint" / "commits" / str(batch)
        with killed(command, until_there=commit):
            # Anywhere in what follows: reading, staging, between partitions, between batches.
            time.sleep(random.uniform(0, 0.5))
            if batch == 8:
                live.kill(leader := live.leader_of(target, 0))
    live.restart(leader)
    while subprocess.run(command, check=False, timeout=300).returncode:
        pass

    assert Counter(values_of(live, target, PARTITIONS)) == Counter(b"%d" % n for n in range(count))


@contextmanager
def killed(command: list[str], until_there: Path) -> Iterator[None]:
    """Run a program until a file is there, and kill it with its Java when the block ends."""
    driver = subprocess.Popen(command, start_new_session=True)
    try:
        until(lambda: until_there.exists() or driver.poll() is not None, 150)
        assert driver.poll() is None, f"it ended with {driver.poll()}"
        yield
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(30)
