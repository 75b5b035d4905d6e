"""Archiving and replaying as programs that are killed, and on a Spark cluster.

Run them by: pytest -m soak tests/spark/test_archive_soak.py (three minutes on a quiet machine).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from leadline_client.payloads import OutgoingRecord
from leadline_spark.archive import catalog
from leadline_spark.archive.storage import open_store
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.jobs import verify
from tests.spark.gates import until
from tests.spark.live import Live
from tests.spark.logs import log_of
from tests.spark.test_deployments import standalone

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
PARTITIONS = 2
ROWS = 60_000


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `leadline spark …` in a process group of its own, which ends with the block."""
    command = [sys.executable, "-m", "leadline_cli", "spark", *words]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill -9 a program and all that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def finished(*words: str) -> int:
    with running(*words) as process:
        return process.wait(300)


@pytest.fixture
def filled(live: Live, topic: str) -> str:
    live.topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        records = (
            OutgoingRecord(os.urandom(200), b"%d" % at, (("h", b"%d" % at),)) for at in range(ROWS)
        )
        live.send(topic, records, partition)
    return topic


def rows(place: Path) -> int:
    return sum(entry.rows for entry in catalog.holdings(open_store(str(place))))


def holds(place: Path, least: int) -> bool:
    return rows(place) >= least


def exists(live: Live, topic: str) -> bool:
    cluster = ClusterClient(Connection(tuple(live.bootstrap.split(","))))
    return topic in cluster.metadata([topic]).topics


def test_a_driver_that_is_killed_again_and_again(live: Live, filled: str, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    cluster = ("--bootstrap", live.bootstrap)
    sizes = ("--max-offsets-per-trigger", "10000")
    archiving = ("archive", *cluster, "--topics", filled, "--to", str(place), *sizes)
    for held in (1, ROWS // 2, ROWS):
        with running(*archiving) as process:
            until(partial(holds, place, held), 120)
            assert process.poll() is None, "it has ended before it was killed"
            kill(process)
    assert finished(*archiving) == 0
    assert verify.main([str(place), *cluster, "--complete", "--rows"]) == 0
    assert rows(place) == PARTITIONS * ROWS

    restored = f"{filled}-restored"
    replaying = ("replay", str(place), *cluster, "--topic", filled, "--into", restored)
    leader = live.leader_of(filled, 0)
    with running(*replaying) as process:
        until(partial(exists, live, restored), 120)
        live.kill(leader)
        assert process.wait(300) == 0
    live.restart(leader)
    for partition in range(PARTITIONS):
        logs = [log_of(live, name, partition) for name in (filled, restored)]
        kept = [[(one.key, one.value, one.headers, one.timestamp) for one in log] for log in logs]
        assert kept[0] == kept[1]
        assert len(kept[0]) == ROWS


def test_jobs_on_a_standalone_cluster(live: Live, topic: str, tmp_path: Path) -> None:
    live.topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        live.send(topic, (OutgoingRecord(b"%d" % at) for at in range(500)), partition)
    place = tmp_path / "archive"
    cluster = ("--bootstrap", live.bootstrap)
    with standalone(Path(sys.executable), tmp_path) as master:
        settings = (f"spark.pyspark.python={sys.executable}", "spark.driver.host=127.0.0.1")
        words = (word for setting in settings for word in ("--conf", setting))
        there = ("--master", master, *words)
        archiving = (
            "--topics",
            topic,
            "--to",
            str(place),
            "--max-offsets-per-trigger",
            "300",
        )
        assert finished("archive", *there, *cluster, *archiving) == 0
        assert finished("compact", *there, str(place)) == 0
        into = f"{topic}-restored"
        replaying = (str(place), "--topic", topic, "--into", into)
        assert finished("replay", *there, *cluster, *replaying) == 0
    assert verify.main([str(place), *cluster, "--complete"]) == 0
    for partition in range(PARTITIONS):
        logs = [log_of(live, name, partition) for name in (topic, into)]
        assert [one.value for one in logs[0]] == [one.value for one in logs[1]]
        assert len(logs[0]) == 500
