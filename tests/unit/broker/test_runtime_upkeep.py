"""Regular work of a broker whose disk refuses: it is put off, and nothing else suffers (S17)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_broker.adapters.log.root_files import HIGH_WATERMARK_FILE, read_high_watermarks
from tests.unit.broker.small_cluster import TOPIC_ID, SmallCluster, three


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    interval = {"replica_high_watermark_checkpoint_interval_ms": 100}
    async with await three(tmp_path, **interval) as running:
        yield running


def refuse_checkpoints(cluster: SmallCluster, broker: int) -> Path:
    """Have every checkpoint of a broker fail, until what is returned is removed."""
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
