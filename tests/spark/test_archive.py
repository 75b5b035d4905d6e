"""Archiving live topics: no fault loses or doubles a record; replays are byte-identical."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import Record
from leadline_spark.archive import catalog
from leadline_spark.archive.storage import open_store, sweep
from leadline_spark.jobs import archive, compact, replay, verify
from tests.spark.dying_archive import PAUSE, PLACES, dying_archive
from tests.spark.gates import until
from tests.spark.live import Live
from tests.spark.logs import log_of

pytestmark = pytest.mark.slow

PARTITIONS = 2
ROWS = 4_000
BATCH = 3_000


def asked(live: Live, topic: str, folder: Path, offsets: int) -> argparse.Namespace:
    words = ["--bootstrap", live.bootstrap, "--topics", topic, "--to", str(folder / "archive")]
    return archive.parser().parse_args([*words, "--max-offsets-per-trigger", str(offsets)])


def sent(number: int, size: int) -> OutgoingRecord:
    """Return a record with everything that a record may have, or lack."""
    return OutgoingRecord(
        None if number % 11 == 0 else bytes([number % 256]) * size,
        None if number % 3 == 0 else b"key-%d" % (number % 7),
        (("trace", b"%d" % number), ("empty", None)) if number % 4 == 0 else (),
        1_700_000_000_000 + 3 * number,
    )


def verified(live: Live, folder: Path) -> int:
    words = ["--bootstrap", live.bootstrap, "--complete", "--rows"]
    return verify.main([str(folder / "archive"), *words])


def content(live: Live, topic: str, partition: int) -> list[tuple[object, ...]]:
    """Return what replay keeps of each record, in order."""
    return [_kept(record) for record in log_of(live, topic, partition)]


def _kept(record: Record) -> tuple[object, ...]:
    return record.key, record.value, tuple(record.headers), record.timestamp


@pytest.fixture(scope="module")
def folder(spark: SparkSession, live: Live, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of `archived`, in the middle of which the leader of a partition was killed."""
    folder = tmp_path_factory.mktemp("archived")
    live.topic("archived", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        live.send("archived", (sent(at, 1_000) for at in range(ROWS)), partition)
    leader = live.leader_of("archived", 0)

    def kill() -> None:
        until((folder / "reached").exists)
        live.kill(leader)
        (folder / "open").touch()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        what = asked(live, "archived", folder, BATCH)
        archive.start(spark, what, dying_archive(PAUSE, folder)).awaitTermination()
        killing.result()
    live.restart(leader)
    return folder


def test_an_archive_outlives_a_leader(live: Live, folder: Path) -> None:
    assert verified(live, folder) == 0
    entries = catalog.holdings(open_store(str(folder / "archive")))
    assert sum(entry.rows for entry in entries) == PARTITIONS * ROWS
    assert len(entries) > PARTITIONS


def test_spark_reads_an_archive_as_it_is(spark: SparkSession, folder: Path) -> None:
    table = spark.read.parquet(str(folder / "archive"))
    assert {"topic", "partition", "offset", "key", "value", "headers"} <= set(table.columns)
    per_partition = {row[0]: row[1] for row in table.groupBy("partition").count().collect()}
    assert per_partition == dict.fromkeys(range(PARTITIONS), ROWS)
    row = table.where("partition = 1 AND offset = 4").first()
    assert row is not None
    assert bytes(row.value) == b"\4" * 1_000
    assert [(header.key, header.value) for header in row.headers] == [
        ("trace", b"4"),
        ("empty", None),
    ]


def test_a_compacted_archive_is_replayed_byte_for_byte_and_once(
    spark: SparkSession, live: Live, folder: Path
) -> None:
    place = str(folder / "archive")
    assert compact.main([place]) == 0
    assert len(catalog.holdings(open_store(place))) == PARTITIONS
    assert verified(live, folder) == 0

    words = [
        place,
        "--bootstrap",
        live.bootstrap,
        "--topic",
        "archived",
        "--into",
        "restored",
    ]
    assert replay.main(words) == 0
    assert replay.main(words) == 0
    for partition in range(PARTITIONS):
        kept = content(live, "restored", partition)
        assert kept == content(live, "archived", partition)
        assert len(kept) == ROWS


def test_a_replay_leaves_topics_alone_that_hold_something_else(
    live: Live, folder: Path, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    live.topic(topic, partitions=PARTITIONS)
    live.send(topic, [sent(1, 10)], partition=1)
    before = [content(live, topic, partition) for partition in range(PARTITIONS)]

    place = ["--bootstrap", live.bootstrap, "--topic", "archived", "--into", topic]
    assert replay.main([str(folder / "archive"), *place]) == 1

    assert "LEADLINE_REPLAY_CONFLICT" in capfd.readouterr().err
    assert content(live, topic, 1) == before[1]


@pytest.mark.parametrize("place", PLACES)
def test_an_archive_that_dies_and_goes_on(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path, place: str
) -> None:
    live.topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        live.send(topic, (sent(at, 20) for at in range(45)), partition)
    what = asked(live, topic, tmp_path, 30)
    store = open_store(what.to)

    with pytest.raises(PySparkException):
        archive.start(spark, what, dying_archive(place, tmp_path)).awaitTermination()
    held = sum(entry.rows for entry in catalog.holdings(store))
    assert 0 < held < 90, "it died in the middle"
    archive.start(spark, what).awaitTermination()

    assert verified(live, tmp_path) == 0
    assert sum(entry.rows for entry in catalog.holdings(store)) == 90
    assert catalog.unlisted(store) == []
    # What the dead have left unfinished is swept when nobody can be writing it any more.
    sweep(store, older_than_s=0)
    assert not [path for path in store.paths() if path.startswith("topic=") and ".tmp" in path]
