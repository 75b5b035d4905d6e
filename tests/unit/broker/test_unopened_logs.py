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
from tests.unit.broker.small_cluster import TOPIC_ID, SmallCluster, three

KEY = (TOPIC_ID, 0)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallCluster]:
    monkeypatch.setattr(unopened_logs, "_AGAIN_S", 0.02)
    async with await three(tmp_path) as running:
        yield running


async def test_a_replica_counts_as_before_once_its_log_is_open(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def no_space(*_: Any, **__: Any) -> PartitionLog:
        tried.append(1)
        raise DiskFull("no space left")

    await cluster.produce(1, "a")
    await cluster.stop(3)
    with monkeypatch.context() as full:
        full.setattr(directory, "PartitionLog", no_space)
        await cluster.start(3)
        assert cluster.stores[3].registered_directories.of_replicas.keys() == {KEY}
        await cluster.grant(3, init=True)
        assert cluster.brokers[3].engine.replicas.find(KEY) is None
        incarnation = cluster.brokers[3].state.incarnation
        before = len(tried)
        await cluster.until(lambda: len(tried) > before + 1, "it was tried again")
        assert cluster.brokers[3].state.incarnation == incarnation

    await cluster.until(
        lambda: not cluster.stores[3].registered_directories.of_replicas, "it has registered again"
    )
    await cluster.until(lambda: cluster.brokers[3].state.incarnation > incarnation, "it is known")
    await cluster.grant(3, init=True)
    await cluster.produce(1, "b")
    await cluster.until(lambda: cluster.end(3) == 2, "it follows with its own log")
    assert cluster.stored(3) == cluster.stored(1)
