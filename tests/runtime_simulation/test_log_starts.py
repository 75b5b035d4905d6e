"""Removals of records: which ones the simulator accepts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from leadline_broker.adapters.log.layout import (
    LOG_SUFFIX,
    PartitionIdentity,
    offset_name,
    write_identity,
)
from leadline_client import batches
from leadline_client.batch_header import header_at
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.log_starts import REMOVED, RESTARTED, LogStarts
from tests.runtime_simulation.plan import Retention
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.runtime_simulation.topics import Topics, name_of
from tests.runtime_simulation.workload import Record
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper import ZooKeeper

_NAME = name_of("t", "a")


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.loop.close()


def a_replica(root: Path, *starts: int, written_ms: int = 0) -> list[Path]:
    """Write a replica's segments of one record each."""
    directory = root / "t-0"
    directory.mkdir(parents=True)
    write_identity(directory, PartitionIdentity("t", "a", 0))
    found = []
    for start in starts:
        data = bytearray(batches.encode([Record(b"value")], now_ms=written_ms))
        batches.stamp(data, header_at(data), start, 0)
        found.append(directory / offset_name(start, LOG_SUFFIX))
        found[-1].write_bytes(data)
    return found


def remove(world: World, root: Path, segment: Path, retention: Retention | None) -> LogStarts:
    """Delete a segment on a simulated disk, at 1,000 seconds of its wall clock."""
    system = SimulatedSystem(world.loop, Random(1), [Disk(root, Random(1))], wall_offset_s=1_000.0)
    starts = LogStarts(Topics(world, ZooKeeper(world)), system, {}, retention)
    with system.in_force():
        os.unlink(segment)  # noqa: PTH108  # as the services do in the end
    assert not segment.exists()
    return starts


@pytest.mark.parametrize("retention", [Retention(1), Retention(-1, 999_999)])
def test_retention_may_remove_the_first_segment(
    world: World, tmp_path: Path, retention: Retention
) -> None:
    segments = a_replica(tmp_path, 0, 1)

    starts = remove(world, tmp_path, segments[0], retention)

    assert (starts.problems, starts.highest(_NAME, 0)) == ([], 1)
    assert set(world.sometimes) == {REMOVED}


@pytest.mark.parametrize("retention", [None, Retention(10_000), Retention(-1, 2_000_000)])
def test_what_retention_keeps_must_stay(
    world: World, tmp_path: Path, retention: Retention | None
) -> None:
    segments = a_replica(tmp_path, 0, 1)

    starts = remove(world, tmp_path, segments[0], retention)

    assert "begins at 1: retention asks for more" in starts.problems[0]


def test_a_log_that_begins_again_has_lost_its_only_segment(world: World, tmp_path: Path) -> None:
    segments = a_replica(tmp_path, 3)

    starts = remove(world, tmp_path, segments[0], None)

    assert starts.problems == []
    assert set(world.sometimes) == {RESTARTED}


def test_a_truncated_log_keeps_its_start(world: World, tmp_path: Path) -> None:
    segments = a_replica(tmp_path, 0, 1)

    starts = remove(world, tmp_path, segments[1], None)

    assert (starts.problems, starts.highest(_NAME, 0)) == ([], 0)
    assert not world.sometimes
