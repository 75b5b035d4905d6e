"""A partition that was removed while a broker was away, and the one that took its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from leadline_broker.adapters.log.root_files import read_high_watermarks
from leadline_broker.domain.state import ReplicaKey
from leadline_common import rpc
from tests.unit.broker.small_cluster import TOPIC_ID, SmallCluster, values

FIRST = 5
"""The leader epoch that the new partition begins with; the old one had 0."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    """Two brokers with a record of the old partition; broker 2 has stopped since."""
    async with SmallCluster(tmp_path) as running:
        await running.start(1, 2)
        running.publish(1, 0, (1, 2))
        await running.grant(1, 2, init=True, replicas=(1, 2))
        await running.produce(1, "old")
        await running.until(lambda: running.end(2) == 1, "2 has the record")
        await running.stop(2)
        await running.stop_replica(1, 0)
        yield running


def remake(cluster: SmallCluster, leader: int, isr: tuple[int, ...]) -> None:
    cluster.nodes.states.clear()
    cluster.publish(leader, FIRST, isr)


async def test_its_replica_does_not_lead_the_new_one(cluster: SmallCluster) -> None:
    """No log would ever show a divergence: the old records would be the partition's."""
    remake(cluster, 2, (2,))
    await cluster.start(2)
    await cluster.grant(2, init=True, replicas=(2, 1), first_epoch=FIRST)
    assert cluster.end(2) == 0
    await cluster.grant(1, replicas=(2, 1), first_epoch=FIRST)
    assert (await cluster.produce(2, "new", acks="1")).base_offset == 0
    assert values(cluster.stored(2)) == ["new"]


async def test_defect_46_a_checkpoint_of_the_former_one_does_not_come_last(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the stop did not wait for one whose task was cancelled, but not its thread."""
    engine, go_on, calls = cluster.brokers[1].engine, threading.Event(), list[str]()
    logs, key = engine.maintenance.logs, (TOPIC_ID, 0)
    write = logs.checkpoint_high_watermarks

    def slow(high_watermarks: Mapping[ReplicaKey, int]) -> None:
        calls.append("begin")
        if len(calls) == 1:
            assert go_on.wait(30)
        write(high_watermarks)
        calls.append("end")

    monkeypatch.setattr(logs, "checkpoint_high_watermarks", slow)
    remake(cluster, 1, (1,))
    await cluster.grant(1, replicas=(1,), first_epoch=FIRST)
    for value in "abc":
        await cluster.produce(1, value)
    former = asyncio.create_task(engine.maintenance.checkpoint())
    await cluster.until(lambda: calls == ["begin"], "the thread writes")
    former.cancel()
    await asyncio.wait({former})
    await cluster.stop_replica(1, FIRST)
    cluster.nodes.states.clear()
    cluster.publish(1, FIRST + 1, (1,))
    await cluster.grant(1, replicas=(1,), first_epoch=FIRST + 1)
    await cluster.produce(1, "new")

    last = asyncio.create_task(engine.maintenance.checkpoint())
    for _ in range(100):  # The thread of this one could begin by now.
        await asyncio.sleep(0)
    go_on.set()
    assert await last
    assert calls == ["begin", "end", "begin", "end"]
    assert read_high_watermarks(cluster.root / "1") == {key: 1}


async def test_its_replica_follows_the_new_one_from_nothing(cluster: SmallCluster) -> None:
    remake(cluster, 1, (1,))
    await cluster.grant(1, replicas=(1, 2), first_epoch=FIRST)
    await cluster.produce(1, "new", acks="1")
    await cluster.start(2)
    await cluster.grant(2, init=True, replicas=(1, 2), first_epoch=FIRST)
    await cluster.until(lambda: cluster.end(2) == 1, "2 has the new record")
    assert values(cluster.stored(2)) == ["new"]


async def test_what_was_set_aside_is_not_brought_back(cluster: SmallCluster) -> None:
    """It came back between the removal and the addition, so that no broker knew its replica."""
    await cluster.start(2)
    await cluster.grant(2, init=True, partitions=())
    remake(cluster, 2, (2,))
    assert await cluster.grant(2, replicas=(2, 1), first_epoch=FIRST) == [[[rpc.NO_ERROR]]]
    assert cluster.end(2) == 0


async def test_what_was_set_aside_of_this_very_partition_is_brought_back(
    cluster: SmallCluster,
) -> None:
    await cluster.start(2)
    await cluster.grant(2, init=True, partitions=())
    assert cluster.brokers[2].engine.replicas.describe() == []
    cluster.publish(1, 1, (1,))
    await cluster.grant(2, replicas=(2, 1))
    assert cluster.end(2) == 1


async def test_a_restart_within_the_new_one_keeps_its_records(cluster: SmallCluster) -> None:
    remake(cluster, 1, (1,))
    await cluster.grant(1, replicas=(1,), first_epoch=FIRST)
    await cluster.produce(1, "new")
    await cluster.stop(1)
    await cluster.start(1)
    cluster.publish(1, FIRST + 1, (1,))
    await cluster.grant(1, init=True, replicas=(1,), first_epoch=FIRST)
    assert values(cluster.stored(1)) == ["new"]
