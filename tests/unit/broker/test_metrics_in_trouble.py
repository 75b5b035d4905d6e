"""What a broker's metrics say when its disk does not answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.broker.small_cluster import three


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
