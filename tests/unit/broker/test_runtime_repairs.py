"""Damaged batches are replaced by other in-sync replicas' copies while readers try again."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from leadline_broker.runtime.replication import repairs
from leadline_client.errors import DamagedBatch, StorageFailed
from tests.runtime_simulation.disk import Disk
from tests.support.services.cluster import wait_until
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, three, values

VALUES = [f"{number:03}" * 20 for number in range(40)]
FOUND, REPAIRED = "leadline_damaged_batches_found", "leadline_damaged_batches_repaired"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path, log_segment_bytes=1_024) as running:
        running.tell_metadata(1, 2, 3)
        for value in VALUES:
            await running.produce(1, value)
        await running.until(lambda: running.high_watermark(2) == len(VALUES), "2 knows the end")
        await running.until(lambda: running.high_watermark(3) == len(VALUES), "3 knows the end")
        yield running


def segments(cluster: SmallCluster, broker: int) -> list[Path]:
    """Return the segments of a broker; all but the last are closed."""
    return sorted((cluster.root / str(broker) / f"{TOPIC}-0").glob("*.log"))


def damage(cluster: SmallCluster, *brokers: int) -> int:
    """Damage the second half of the third segment; return the last offset in it."""
    for broker in brokers:
        third = segments(cluster, broker)[2]
        content = third.read_bytes()
        kept = len(content) // 2
        third.write_bytes(content[:kept] + bytes(len(content) - kept))
    return int(segments(cluster, brokers[0])[3].stem) - 1


def count(cluster: SmallCluster, broker: int, name: str) -> float:
    return cluster.metrics[broker].registry.get_sample_value(f"{name}_total") or 0


async def follower_reads(cluster: SmallCluster, at: int, offset: int) -> list[str]:
    fetched = await cluster.brokers[at].engine.serving.fetch(
        TOPIC, 0, offset, max_bytes=1, min_bytes=1, wait_ms=0, any_replica=True
    )
    return values(fetched.records)


async def succeeds(
    read: Callable[[], Awaitable[list[str]]], refusal: type[StorageFailed] = DamagedBatch
) -> list[str]:
    """Repeat a read while it is refused, by default as one to be repeated."""
    result = list[str]()

    async def has_read() -> bool:
        try:
            result[:] = await read()
        except refusal:
            return False
        return True

    await wait_until(has_read, "a read of what was damaged")
    return result


async def is_final(cluster: SmallCluster, offset: int) -> bool:
    """Tell whether the leader refuses a read for good."""
    with pytest.raises(StorageFailed) as refusal:
        await cluster.read(1, offset)
    return not refusal.value.retriable


async def test_a_leader_copies_from_its_followers(cluster: SmallCluster) -> None:
    offset = damage(cluster, 1)
    with pytest.raises(DamagedBatch, match="being repaired") as refusal:
        await cluster.read(1, offset)
    assert refusal.value.retriable

    read = await succeeds(lambda: cluster.read(1, offset))
    assert read[0] == VALUES[offset]
    assert cluster.stored(1) == cluster.stored(2)
    assert count(cluster, 1, FOUND) == 1
    assert count(cluster, 1, REPAIRED) > 1, "all that lay behind it"


async def test_defect_35_a_power_cut_does_not_bring_back_what_was_repaired(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did until the next append, which an idle partition may never have."""
    offset = damage(cluster, 1)
    third, disk = segments(cluster, 1)[2], Disk(cluster.root / "1", Random(0))
    disk.synced(str(third))
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        disk.synced(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    await succeeds(lambda: cluster.read(1, offset))

    inode = third.stat().st_ino
    await cluster.until(lambda: disk.contents[inode] == third.read_bytes(), "it is fsynced")


async def test_a_follower_copies_from_its_leader(cluster: SmallCluster) -> None:
    offset = damage(cluster, 2, 3)
    assert await succeeds(lambda: follower_reads(cluster, 2, offset)) == [VALUES[offset]]
    assert cluster.stored(1) == cluster.stored(2) != cluster.stored(3)


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("last", [False, True])
async def test_defect_44_a_reader_of_a_removed_segment_gets_a_copy(
    cluster: SmallCluster, *, with_index: bool, last: bool
) -> None:
    """It was refused for good, and nothing told of which partition."""
    await cluster.stop(1)
    await cluster.start(1)
    cluster.publish(1, 1, (1, 2, 3))
    await cluster.grant(1, init=True)
    await cluster.grant(2, 3)
    cluster.tell_metadata(1, 2, 3)
    await cluster.until(lambda: cluster.high_watermark(1) == len(VALUES), "1 knows the end")
    removed = segments(cluster, 1)[-2 if last else 0]
    offset = int(removed.stem) + 1
    removed.unlink()
    if not with_index:
        removed.with_suffix(".index").unlink()

    with pytest.raises(DamagedBatch, match=f"{TOPIC}-0.*being repaired"):
        await cluster.read(1, offset)
    assert (await succeeds(lambda: cluster.read(1, offset)))[0] == VALUES[offset]
    assert await succeeds(lambda: cluster.read(1, int(removed.stem)))
    await cluster.until(lambda: cluster.stored(1) == cluster.stored(2), "it is repaired")


async def test_a_follower_that_catches_up_lets_its_leader_repair(cluster: SmallCluster) -> None:
    await cluster.stop(3)
    for path in (cluster.root / "3" / f"{TOPIC}-0").iterdir():
        path.unlink()
    (cluster.root / "3" / f"{TOPIC}-0").rmdir()
    damage(cluster, 1)

    await cluster.start(3)
    await cluster.grant(3, init=True)
    await cluster.until(lambda: cluster.stored(3) == cluster.stored(2), "3 has all again")
    assert cluster.stored(1) == cluster.stored(2)


async def test_a_lookup_by_time_lets_its_leader_repair(cluster: SmallCluster) -> None:
    first = segments(cluster, 1)[0]
    first.write_bytes(bytes(first.stat().st_size))
    serving = cluster.brokers[1].engine.serving

    async def found() -> list[str]:
        return [str((await serving.offsets(TOPIC, 0, 1)).offset)]

    with pytest.raises(DamagedBatch):
        await found()
    assert await succeeds(found) == ["0"]


async def test_what_nobody_has_is_refused_for_good_until_somebody_has_it(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = segments(cluster, 3)[2].read_bytes()
    offset = damage(cluster, 1, 2, 3)
    await wait_until(lambda: is_final(cluster, offset), "all replicas were asked")
    assert count(cluster, 1, REPAIRED) == 0

    segments(cluster, 3)[2].write_bytes(whole)
    assert await is_final(cluster, offset), "nobody is asked again at once"
    monkeypatch.setattr(repairs, "UNREPAIRABLE_MS", 0)
    read = await succeeds(lambda: cluster.read(1, offset), refusal=StorageFailed)
    assert read[0] == VALUES[offset]


async def test_readers_try_again_while_a_replica_cannot_be_asked(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "RETRY_MS", 0)
    offset = damage(cluster, 1, 2)
    cluster.cut.add(3)

    async def was_tried_again() -> bool:
        with pytest.raises(DamagedBatch):
            await cluster.read(1, offset)
        return count(cluster, 1, FOUND) > 2

    await wait_until(was_tried_again, "another repair")
    cluster.cut.clear()
    assert (await succeeds(lambda: cluster.read(1, offset)))[0] == VALUES[offset]


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_broker_whose_disk_takes_no_copy_serves_the_rest(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, *, says_so: bool
) -> None:
    offset = damage(cluster, 1)
    bad, real = segments(cluster, 1)[2], os.pwrite

    def pwrite(fd: int, data: bytes, position: int) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink() != bad:
            return real(fd, data, position)
        if says_so:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return len(data)

    with monkeypatch.context() as failing:
        failing.setattr(os, "pwrite", pwrite)
        await wait_until(lambda: is_final(cluster, offset), "the disk has refused")
    await cluster.produce(1, "more")
    assert await cluster.read(1, len(VALUES)) == ["more"]


async def test_a_partition_without_other_replicas_says_so(tmp_path: Path) -> None:
    cluster = SmallCluster(tmp_path, log_segment_bytes=1_024)
    async with cluster:
        await cluster.start(1)
        cluster.publish(1, 0, (1,))
        await cluster.grant(1, init=True, replicas=(1,))
        for value in VALUES:
            await cluster.produce(1, value)
        offset = damage(cluster, 1)
        with pytest.raises(StorageFailed, match="no other in-sync replica") as refusal:
            await cluster.read(1, offset)
        assert not refusal.value.retriable
