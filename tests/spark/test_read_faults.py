"""Reads while brokers and drivers die: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program has it

from leadline_client.payloads import OutgoingRecord
from tests.spark.live import Live
from tests.spark.programs import follow
from tests.support.services.up import until

pytestmark = pytest.mark.slow

RECORDS = 12_000
_PADDING = b"x" * 1_000


@pytest.fixture
def filled(live: Live, topic: str) -> str:
    """A topic of 12 MB in one partition: more than sockets and pipes hold."""
    live.topic(topic)
    live.send(topic, (OutgoingRecord(b"%d:" % n + _PADDING, None) for n in range(RECORDS)))
    return topic


@pytest.fixture
def broken(live: Live) -> Iterator[list[str]]:
    """Services to bring back when the test is over."""
    names: list[str] = []
    yield names
    for name in names:
        live.restart(name)


class Gate:
    """Holds a task after its first rows, until the test lets it go on. Its state is in files."""

    def __init__(self, folder: Path) -> None:
        self._begun = folder / "begun"
        self._go = folder / "go"

    def hold(self, frame: DataFrame) -> DataFrame:
        begun, go = self._begun, self._go

        def wait(offset: int) -> int:
            begun.touch()
            while not go.exists():
                time.sleep(0.05)
            return offset

        return frame.select(F.udf(wait, "long", useArrow=False)("offset").alias("offset"))

    def until_begun(self) -> None:
        until(self._begun.exists, "the first rows are read")

    def open(self) -> None:
        self._go.touch()


def kill_the_leader(live: Live, topic: str, broken: list[str]) -> None:
    name = live.leader_of(topic, 0)
    broken.append(name)
    live.kill(name)


def test_a_batch_read_outlives_its_leader(
    spark: SparkSession, live: Live, filled: str, broken: list[str], tmp_path: Path
) -> None:
    reader = spark.read.format("leadline").option("bootstrap", live.bootstrap)
    frame = reader.option("subscribe", filled).option("fetchMaxBytes", "65536")
    gate = Gate(tmp_path)
    rows = gate.hold(frame.load())
    found: list[int] = []
    reading = threading.Thread(target=lambda: found.extend(row[0] for row in rows.collect()))

    reading.start()
    gate.until_begun()
    kill_the_leader(live, filled, broken)
    gate.open()
    reading.join(120)

    assert found == list(range(RECORDS))


def test_a_stream_outlives_its_leader(
    spark: SparkSession, live: Live, filled: str, broken: list[str], tmp_path: Path
) -> None:
    reader = spark.readStream.format("leadline").option("bootstrap", live.bootstrap)
    frame = reader.options(subscribe=filled, startingOffsets="earliest", fetchMaxBytes="65536")
    gate = Gate(tmp_path)
    rows = gate.hold(frame.load())
    found: list[int] = []

    def keep(batch: DataFrame, _: int) -> None:
        found.extend(row[0] for row in batch.collect())

    query = rows.writeStream.foreachBatch(keep).start()
    try:
        gate.until_begun()
        kill_the_leader(live, filled, broken)
        gate.open()
        until(lambda: len(found) >= RECORDS, "the whole topic is read")
        live.send(filled, [OutgoingRecord(b"after", None)])
        until(lambda: len(found) > RECORDS, "the stream goes on")
    finally:
        query.stop()

    assert found == list(range(RECORDS + 1))


def test_a_driver_killed_inside_a_batch_goes_on_from_its_checkpoint(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic, partitions=2)
    for partition in range(2):
        live.send(topic, numbered(20), partition=partition)
    with Driver(tmp_path, live.bootstrap, topic, hold_in=1) as driver:
        driver.until("inside-1")
    live.send(topic, numbered(7, first=20), partition=0)

    follow(spark, live.bootstrap, topic, tmp_path, ends=True)

    assert_read_once(tmp_path, {0: 27, 1: 20})


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_drivers_killed_inside_and_between_batches(live: Live, topic: str, tmp_path: Path) -> None:
    """Run it by: pytest -m soak tests/spark/test_read_faults.py (about two minutes)."""
    live.topic(topic, partitions=2)
    for partition in range(2):
        live.send(topic, numbered(20), partition=partition)
    for run in range(4):
        done = len(list(tmp_path.glob("done-*")))
        inside = run % 2 == 0
        with Driver(tmp_path, live.bootstrap, topic, hold_in=done if inside else -1) as driver:
            if inside:
                driver.until(f"inside-{done}")
            else:
                driver.until_read(40 + 10 * run)
        for partition in range(2):
            live.send(topic, numbered(5, first=20 + 5 * run), partition=partition)

    with Driver(tmp_path, live.bootstrap, topic, ends=True) as last:
        assert last.process.wait(120) == 0

    assert_read_once(tmp_path, {0: 40, 1: 40})


def numbered(count: int, first: int = 0) -> list[OutgoingRecord]:
    return [OutgoingRecord(b"%d" % n, None) for n in range(first, first + count)]


def lines(folder: Path) -> list[str]:
    return [line for path in folder.glob("batch-*") for line in path.read_text().splitlines()]


def assert_read_once(folder: Path, counts: dict[int, int]) -> None:
    found = sorted(tuple(int(word) for word in line.split()) for line in lines(folder))
    wanted = [(partition, n) for partition, count in counts.items() for n in range(count)]
    assert found == sorted(wanted)


class Driver:
    """A driver process of its own, killed when the block is left; see tests/spark/programs.py."""

    def __init__(
        self, folder: Path, bootstrap: str, topic: str, *, hold_in: int = -1, ends: bool = False
    ) -> None:
        self._folder = folder
        words = [bootstrap, topic, str(folder), str(hold_in), "ends" if ends else "goes-on"]
        command = [sys.executable, "-m", "tests.spark.programs", *words]
        # A session of its own, so that the Java process can be killed with it.
        self.process = subprocess.Popen(command, start_new_session=True)

    def until(self, marker: str) -> None:
        path = self._folder / marker
        until(lambda: path.exists() or self.process.poll() is not None, f"{marker} is there", 150)
        assert path.exists(), f"the driver ended with {self.process.poll()}"

    def until_read(self, records: int) -> None:
        until(lambda: len(lines(self._folder)) == records, f"{records} records are read", 150)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
