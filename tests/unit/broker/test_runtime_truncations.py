"""What followers remove because their leader lacks it is counted; if it was committed, reported."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from leadline_broker.adapters.log import durability, epoch_file
from leadline_broker.adapters.log.file_cache import FileCache, LogFile
from leadline_client.errors import LeadershipLost, StorageFailed
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, batch, three

COMMITTED = "committed records were truncated: the leader lacks them"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


def truncated(cluster: SmallCluster, broker: int) -> tuple[float | None, ...]:
    """Return how many committed and how many other records a broker has truncated."""
    registry = cluster.metrics[broker].registry
    name = "leadline_truncated_records_total"
    return tuple(
        registry.get_sample_value(name, {"kind": kind}) for kind in ("committed", "uncommitted")
    )


async def test_records_that_were_not_committed_are_counted(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a")
    cluster.cut = {1}
    lost = asyncio.create_task(cluster.produce(1, "x", "y"))
    await cluster.until(lambda: cluster.end(1) == 3, "the old leader appends")
    cluster.publish(2, 1, (2, 3))
    await cluster.grant(2, 3)
    await cluster.produce(2, "b")
    cluster.cut = set()
    with capture_logs() as lines:
        await cluster.grant(1)
        with pytest.raises(LeadershipLost):
            await lost
        await cluster.until(lambda: cluster.stored(1) == cluster.stored(2), "the logs are one")

    assert truncated(cluster, 1) == (0, 2)
    assert truncated(cluster, 2) == truncated(cluster, 3) == (0, 0)
    assert COMMITTED not in [line["event"] for line in lines]


async def test_committed_records_that_an_old_copy_of_a_directory_lacks_are_reported(
    cluster: SmallCluster,
) -> None:
    """The copy has the directory's own id, so that rule R17 does not see it."""
    await cluster.produce(1, "a")
    await cluster.stop(1)
    shutil.copytree(cluster.root / "1", cluster.root / "copy")
    await cluster.start(1)
    cluster.publish(1, 1, (1, 2, 3))
    await cluster.grant(1, init=True)
    await cluster.grant(2, 3)
    await cluster.produce(1, "b", "c")
    await cluster.until(
        lambda: {cluster.high_watermark(number) for number in (2, 3)} == {3}, "followers know"
    )
    await cluster.stop(1)
    shutil.rmtree(cluster.root / "1")
    (cluster.root / "copy").rename(cluster.root / "1")
    await cluster.start(1)
    cluster.publish(1, 2, (1,))
    with capture_logs() as lines:
        await cluster.grant(1, init=True)
        await cluster.grant(2, 3)
        await cluster.until(
            lambda: {cluster.end(number) for number in (2, 3)} == {1}, "followers truncate"
        )

    reports = [line for line in lines if line["event"] == COMMITTED]
    assert [truncated(cluster, number) for number in (1, 2, 3)] == [(0, 0), (2, 0), (2, 0)]
    assert len(reports) == 2
    for report in reports:
        assert report["log_level"] == "error"
        assert (report["topic"], report["partition"], report["leader"]) == ("t", 0, 1)
        assert (report["end"], report["end_before"], report["committed"]) == (1, 3, 2)


@asynccontextmanager
async def without_3(root: Path) -> AsyncIterator[SmallCluster]:
    """Yield brokers; 3 is down, and retention has removed all that it has from its new leader 2."""
    settings = {"log_segment_bytes": 1_024, "log_retention_bytes": 0}
    async with await three(root, **settings) as cluster:
        await cluster.produce(1, *"abc")
        await cluster.until(lambda: cluster.high_watermark(3) == 3, "all are committed there")
        await cluster.stop(3)
        cluster.publish(2, 1, (1, 2))
        await cluster.grant(2, 1)
        for _ in range(4):
            await cluster.produce(2, "x" * 600)
        await cluster.brokers[2].engine.maintenance.apply_retention()
        assert cluster.brokers[2].engine.replicas.describe()[0].log_start_offset > 3
        yield cluster


async def test_defect_30_a_follower_that_begins_again_on_a_full_disk_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody flushed it again. It fetched nothing any more, nor did others from that leader."""
    left, real = [None] * 2, epoch_file.write_epochs

    def write_epochs(directory: Path, entries: list[tuple[int, int]]) -> None:
        if left and directory.parent.name == "3":
            left.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(directory, entries)

    async with without_3(tmp_path) as cluster:
        monkeypatch.setattr(durability, "write_epochs", write_epochs)
        await cluster.start(3)
        await cluster.grant(3, init=True)
        await cluster.until(lambda: cluster.end(3) == cluster.end(2), "it has caught up")
        assert not left


@pytest.mark.parametrize("shortage", [errno.ENOSPC, errno.EDQUOT])
async def test_defect_37_a_follower_that_cannot_begin_again_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortage: int
) -> None:
    """It ended its broker, with all the other replicas."""
    full, real = True, FileCache.create

    def create(files: FileCache, file: LogFile) -> None:
        if full and file.path.parent == tmp_path / "3" / f"{TOPIC}-0":
            raise OSError(shortage, os.strerror(shortage))
        real(files, file)

    async with without_3(tmp_path) as cluster:
        monkeypatch.setattr(FileCache, "create", create)
        await cluster.start(3)
        cluster.publish(2, 1, (1, 2), partition=1)
        await cluster.grant(1, 2, partitions=(0, 1))
        await cluster.grant(3, init=True, partitions=(0, 1))
        broker = cluster.brokers[3]
        await cluster.until(lambda: bool(broker.problems()), "it says what it lacks")
        [problem] = broker.problems()
        assert f"cannot begin again: 1, first {TOPIC}-0: no space left" in problem.reason
        assert problem.serving
        assert not broker._has_failed
        assert list((tmp_path / "3" / f"{TOPIC}-0").glob("*.log*")) == []

        produced = cluster.brokers[2].engine.serving.produce(
            TOPIC, 1, batch("another"), acks="all", timeout_ms=5_000
        )
        await produced
        await cluster.until(lambda: ends(cluster, 3)[1] == 1, "others are replicated")

        # The members of its directory may have been in sync.
        cluster.publish(3, 2, (3, 2))
        assert await cluster.grant(3) == [[[StorageFailed.code]]]
        assert any("lacks the space" in one.reason for one in broker.problems())

        cluster.publish(2, 3, (1, 2))
        await cluster.grant(3, 2, 1)
        full = False
        await cluster.until(lambda: cluster.end(3) == cluster.end(2), "it has caught up")
        assert broker.problems() == []
        cluster.publish(3, 4, (3, 2))
        assert await cluster.grant(3) == [[[0]]]


def ends(cluster: SmallCluster, at: int) -> list[int]:
    """Return the log ends of a broker's replicas."""
    return [one.log_end_offset for one in cluster.brokers[at].engine.replicas.describe()]


async def test_defect_31_what_retention_has_removed_from_a_leader_is_not_missing_there(
    tmp_path: Path,
) -> None:
    async with without_3(tmp_path) as cluster:
        await cluster.start(3)
        with capture_logs() as lines:
            await cluster.grant(3, init=True)
            await cluster.until(lambda: cluster.end(3) == cluster.end(2), "it has caught up")

        assert truncated(cluster, 3) == (0, 0)
        assert COMMITTED not in [line["event"] for line in lines]
