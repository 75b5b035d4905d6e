"""A partition that was removed while a broker was away, and the one that took its place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_common import rpc
from tests.unit.broker.small_cluster import SmallCluster, values

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
