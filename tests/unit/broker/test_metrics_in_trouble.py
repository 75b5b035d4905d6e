"""What a broker's metrics say while it starts, and when its disk does not answer."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from leadline_broker.adapters.disk import DiskLogs
from leadline_broker.domain.state import Addresses
from leadline_broker.runtime.broker import Broker
from leadline_common.clock import SystemClock
from leadline_common.metrics import Metrics
from leadline_common.settings import BrokerSettings
from tests.unit.broker.small_cluster import NodeStore, SmallCluster, StateNodes, Wire, three


def value(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"leadline_{name}")


async def test_a_broker_that_recovers_its_logs_has_its_lease(tmp_path: Path) -> None:
    """LeadlineLeaseExpired is not to fire while recovery takes its time."""
    settings, metrics = BrokerSettings(broker_id=1, log_dir=str(tmp_path)), Metrics(process=False)
    while_opening: list[float | None] = []

    def open_logs(cluster_id: str, _: object) -> DiskLogs:
        metrics.sample()
        while_opening.append(value(metrics, "lease_left_seconds"))
        return DiskLogs(settings, cluster_id)

    broker = Broker(
        settings,
        store=NodeStore(1, StateNodes()),
        peers=Wire(SmallCluster(tmp_path), 1),
        open_logs=open_logs,
        clock=SystemClock(),
        metrics=metrics,
        random=Random(1),
    )
    await broker.start(Addresses("http://b/1", "https://b/1"))
    await broker.close()

    assert while_opening == [1.0]


async def test_a_disk_that_cannot_say_its_size_keeps_no_other_metric_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await three(tmp_path) as cluster:
        metrics = cluster.brokers[1]._dependencies.metrics._metrics

        def refuse(_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(shutil, "disk_usage", refuse)
        served = metrics.render().decode()

    assert "leadline_replicas 1.0" in served
    assert "leadline_log_dir_size_bytes{" in served
    assert "leadline_log_dir_free_bytes{" not in served
