"""Maintenance while the disk refuses writes: it is postponed, and the broker works on (S17)."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from leadline_broker.adapters.log.root_files import HIGH_WATERMARK_FILE, read_high_watermarks
from leadline_broker.domain.replica import Replica
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.cluster.directory_version import DirectoryVersion
from leadline_broker.runtime.ports import ClusterStore, LogStore
from leadline_broker.runtime.replication.maintenance import Maintenance
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.remembered_producers import RememberedProducers
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_common.clock import Clock, SystemClock
from leadline_common.cluster_time import ClusterTime
from leadline_common.settings import BrokerSettings
from tests.support.manual_clock import ManualClock
from tests.unit.broker.log_support import batch, open_log
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, three


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    interval = {"replica_high_watermark_checkpoint_interval_ms": 100}
    async with await three(tmp_path, **interval) as running:
        yield running


def refuse_checkpoints(cluster: SmallCluster, broker: int) -> Path:
    """Make every checkpoint of a broker fail until the returned directory is removed."""
    obstacle = cluster.root / str(broker) / f"{HIGH_WATERMARK_FILE}.tmp"
    obstacle.mkdir()
    return obstacle


def checkpointed(cluster: SmallCluster, broker: int) -> int | None:
    return read_high_watermarks(cluster.root / str(broker)).get((TOPIC_ID, 0))


async def test_a_checkpoint_that_cannot_be_written_is_written_later(cluster: SmallCluster) -> None:
    obstacle = refuse_checkpoints(cluster, 1)
    await cluster.produce(1, "v")
    await cluster.until(
        lambda: checkpointed(cluster, 2) == checkpointed(cluster, 3) == 1, "the others wrote theirs"
    )
    await cluster.produce(1, "w")

    obstacle.rmdir()

    await cluster.until(lambda: checkpointed(cluster, 1) == 2, "the checkpoint is made up for")
    assert await cluster.read(1) == ["v", "w"]


async def test_without_a_checkpoint_it_still_leaves_in_good_order(cluster: SmallCluster) -> None:
    refuse_checkpoints(cluster, 1)
    await cluster.produce(1, "v")

    await cluster.stop(1)

    assert 1 not in cluster.nodes.live
    assert (cluster.root / "1" / "clean-shutdown").exists()


NONE_KEPT: Mapping[str, str] = {"retention.bytes": "0"}
LATEST_MS = 1_000
"""The time of all records."""


class Kept(list[Partition]):
    """The part of a `ReplicaManager` that maintenance uses."""

    def all(self) -> list[Partition]:
        return list(self)


def maintained(
    root: Path,
    segments: int,
    replicas: int = 1,
    clock: Clock | None = None,
    configs: Mapping[str, str] = NONE_KEPT,
) -> tuple[Maintenance, Kept]:
    """Return the maintenance of some replicas, none of whose closed segments is to be kept."""
    kept, settings = Kept(), BrokerSettings(broker_id=1, log_dir=str(root))
    settings_of_topic = TopicSettings(settings).of(configs)
    for number in range(replicas):
        root.joinpath(str(number)).mkdir()
        log = open_log(root / str(number))
        replica = Replica(broker_id=1, topic_id=TOPIC_ID, partition=number, log=log)
        kept.append(Partition(TOPIC, TOPIC_ID, number, log, replica, settings_of_topic))
        log.roll_at(1)
        for offset in range(segments):
            log.append(batch(offset))
        log.flush()
        replica.state.high_watermark = segments
    clock, manager = clock or SystemClock(), cast("ReplicaManager", kept)
    work = Maintenance(
        configuration=Configuration(settings, cast("ClusterStore", None)),
        broker_state=BrokerState(1, lambda: True),
        replicas=manager,
        logs=cast("LogStore", None),
        directory_version=cast("DirectoryVersion", None),
        producers=RememberedProducers(replicas=manager, clock=clock, most=lambda: 1),
        clock=clock,
        time=ClusterTime(clock),
        execute=lambda *_: None,
    )
    return work, kept


async def test_retention_goes_on_past_a_replica_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    work, kept = maintained(tmp_path, segments=2, replicas=2)
    kept[0].log.close()  # type: ignore[attr-defined]  # the log of a deleted replica is closed

    await work.apply_retention()

    assert kept[1].log.log_start_offset == 1


@pytest.mark.parametrize("days", [-3_650, 3_650])
async def test_records_are_not_too_old_because_a_clock_is_set(tmp_path: Path, days: int) -> None:
    """They were deleted for good, on the leader and then on every replica."""
    clock = ManualClock(wall_ms=LATEST_MS)
    hour = {"retention.ms": "3600000"}
    work, kept = maintained(tmp_path, segments=3, clock=clock, configs=hour)
    await work.apply_retention()
    work.time.hear(LATEST_MS)
    clock.step_wall(days * 86_400_000)

    await work.apply_retention()
    assert kept[0].log.log_start_offset == 0

    clock.advance(3_600_001)
    await work.apply_retention()
    assert kept[0].log.log_start_offset == (2 if days > 0 else 0)


async def test_nothing_is_too_old_before_the_controller_says_what_time_it_is(
    tmp_path: Path,
) -> None:
    clock = ManualClock(wall_ms=LATEST_MS + 3_600_001)
    hour = {"retention.ms": "3600000"}
    work, kept = maintained(tmp_path, segments=3, clock=clock, configs=hour)

    await work.apply_retention()
    assert kept[0].log.log_start_offset == 0

    work.time.hear(clock.wall_ms())
    await work.apply_retention()
    assert kept[0].log.log_start_offset == 2


async def test_retention_of_many_segments_removes_files_in_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop would stand still: 64 MB take 20 ms, and a log may have thousands."""
    work, kept = maintained(tmp_path, segments=50)
    unlink, threads = Path.unlink, list[int]()

    def noted(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith(".log.deleted"):
            threads.append(threading.get_ident())
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    await work.apply_retention()

    assert kept[0].log.log_start_offset == 49
    assert len(threads) == 49
    assert threading.get_ident() not in threads
