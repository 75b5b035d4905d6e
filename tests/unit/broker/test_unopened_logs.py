"""Logs that lacked space when the broker started are opened once there is some (rule R17)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from leadline_broker.adapters.log import directory
from leadline_broker.adapters.log.errors import DiskFull
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.runtime import unopened_logs
from leadline_common import rpc
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, three

KEY = (TOPIC_ID, 0)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallCluster]:
    monkeypatch.setattr(unopened_logs, "_AGAIN_S", 0.02)
    async with await three(tmp_path) as running:
        yield running


class FullDisk:
    """No log can be opened; counts the attempts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.tried = 0
        patch.setattr(directory, "PartitionLog", self._no_space)

    def _no_space(self, *_: Any, **__: Any) -> PartitionLog:
        self.tried += 1
        raise DiskFull("no space left")


async def registered_again(cluster: SmallCluster, incarnation: int) -> None:
    """Wait until broker 3 has registered with all of its logs open."""
    await cluster.until(
        lambda: not cluster.stores[3].registered_directories.of_replicas, "it has registered again"
    )
    await cluster.until(lambda: cluster.brokers[3].state.incarnation > incarnation, "it is known")


def directories(cluster: SmallCluster) -> list[str]:
    """Return the names of what broker 3 has of replicas."""
    return [path.name for path in (cluster.root / "3").glob(f"{TOPIC}-*")]


async def test_a_replica_counts_as_before_once_its_log_is_open(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.produce(1, "a")
    await cluster.until(lambda: cluster.high_watermark(3) == 1, "broker 3 knows that")
    await cluster.stop(3)
    with monkeypatch.context() as patch:
        full = FullDisk(patch)
        await cluster.start(3)
        assert cluster.stores[3].registered_directories.of_replicas.keys() == {KEY}
        await cluster.grant(3, init=True)
        assert cluster.brokers[3].engine.replicas.find(KEY) is None
        incarnation = cluster.brokers[3].state.incarnation
        before = full.tried
        await cluster.until(lambda: full.tried > before + 1, "it was tried again")
        assert cluster.brokers[3].state.incarnation == incarnation

    await registered_again(cluster, incarnation)
    assert (cluster.end(3), cluster.high_watermark(3)) == (1, 1)
    await cluster.grant(3, init=True)
    await cluster.produce(1, "b")
    await cluster.until(lambda: cluster.end(3) == 2, "it follows with its own log")
    assert cluster.stored(3) == cluster.stored(1)


async def test_defect_49_a_log_that_is_opened_after_its_topic_was_deleted_is_set_aside(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another controller had deleted the topic: no grant names the replica."""
    await cluster.produce(1, "a")
    await cluster.stop(3)
    with monkeypatch.context() as patch:
        FullDisk(patch)
        await cluster.start(3)
        await cluster.grant(3, init=True, partitions=())
        incarnation = cluster.brokers[3].state.incarnation
    await registered_again(cluster, incarnation)
    assert directories(cluster) == [f"{TOPIC}-0"]

    await cluster.grant(3, init=True, partitions=())

    assert directories(cluster) == [f"{TOPIC}-0.{TOPIC_ID}-stray"]


async def test_defect_49_a_log_that_could_not_be_opened_is_deleted_with_its_topic(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody deletes a topic because the disk is full."""
    await cluster.produce(1, "a")
    await cluster.stop(3)
    with monkeypatch.context() as patch:
        full = FullDisk(patch)
        await cluster.start(3)
        await cluster.grant(3, init=True)
        registered = cluster.stores[3].registered_directories
        assert directories(cluster) == [f"{TOPIC}-0"]

        assert await cluster.stop_replica(3, 0) == rpc.NO_ERROR
        assert await cluster.stop_replica(3, 0) == rpc.NO_ERROR, "it is repeated"

        engine = cluster.brokers[3].engine
        assert engine.logs.own_directory_ids() == registered.of_replicas, "until it registers again"
        await engine.removals.finish()
        assert directories(cluster) == []
        assert not engine.logs.has_retriable
    assert full.tried
