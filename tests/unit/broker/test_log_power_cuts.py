"""What a power cut leaves of a log, on a disk that forgets what was not synced (S16; R4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.layout import read_identity
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.event_loop import SimulatedLoop
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.unit.broker.log_support import IDENTITY, batch, open_log, read_all


class Forgetful(Random):
    """Chance, such that nothing survives that was not synced."""

    def random(self) -> float:
        return 0.9


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk that has a broker's log directory."""
    disk = Disk(tmp_path / "disk", Forgetful(0))
    loop = SimulatedLoop()
    with SimulatedSystem(loop, Forgetful(0), [disk]).in_force():
        yield disk
    loop.close()


def test_what_was_flushed_survives_and_what_was_not_does_not(disk: Disk) -> None:
    log = open_log(disk.root)
    log.append(batch(0, b"flushed"))
    log.flush()
    log.append(batch(1, b"not flushed"))

    disk.cut_power()

    assert read_all(open_log(disk.root)) == [batch(0, b"flushed")]


def test_defect_27_a_log_that_a_killed_process_had_just_created_survives_recovered(
    disk: Disk,
) -> None:
    """The process ended before its first fsync; only the next one acknowledges anything."""
    open_log(disk.root).append(batch(0, b"before the kill"))
    recovered = open_log(disk.root)
    recovered.append(batch(1, b"after it"))
    recovered.flush()

    disk.cut_power()

    assert read_all(open_log(disk.root)) == [batch(0, b"before the kill"), batch(1, b"after it")]
    assert read_identity(recovered.directory) == IDENTITY


def test_what_a_recovered_log_calls_durable_survives(disk: Disk) -> None:
    """It was only in the page cache when the process was killed, and is counted from now on."""
    open_log(disk.root).append(batch(0, b"before the kill"))
    recovered = open_log(disk.root)
    assert recovered.durable_end_offset == 1

    disk.cut_power()

    assert read_all(open_log(disk.root)) == [batch(0, b"before the kill")]


def test_a_log_that_was_never_flushed_leaves_nothing(disk: Disk) -> None:
    """The first fsync of another log made the entry of its directory durable."""
    topic_id = "11111111-0000-0000-0000-000000000000"
    directory = LogDirectory(disk.root, cluster_id="c", broker_id=1)
    directory.open("t", topic_id, 0).append(batch(0, b"not flushed"))
    other = directory.open("t", topic_id, 1)
    other.append(batch(0, b"flushed"))
    other.flush()
    directory.release()

    disk.cut_power()

    assert (disk.root / "t-0").is_dir()
    again = LogDirectory(disk.root, cluster_id="c", broker_id=1)
    assert [read_all(log) for log in again.load_all()] == [[batch(0, b"flushed")]]
    assert (again.strays(), again.lost) == ({}, [])
    again.release()
