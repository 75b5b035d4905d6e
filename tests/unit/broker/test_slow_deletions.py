"""Commands about many replicas with logs: each takes fsyncs, and others are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadline_broker.runtime.replication.late_roles import LateRole
from leadline_client.errors import StaleIncarnation
from leadline_client.wire import TopicPartition
from leadline_common import rpc
from leadline_common.slices import TURN_MS
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch

REPLICAS = 12


class DiskTime:
    """A clock by which half a turn has passed with each operation of the disk, and no time else."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def slow(self, operation: Any, *what: object) -> object:
        self.now_ms += TURN_MS // 2
        return operation(*what)


def grant(sequence: int, *partitions: int, topic_id: str = TOPIC_ID) -> rpc.LeaderAndIsrRequest:
    rows = [rpc.PartitionRow(number, 1, 0, (1,), (1,), 0) for number in partitions]
    topics = [rpc.TopicRows(TOPIC, topic_id, {}, rows)] if rows else []
    addresses = [rpc.BrokerRow(1, "http://b/1", None, 1, "https://b/1")]
    return rpc.LeaderAndIsrRequest(
        0, 1, 1, 1, True, 1_000, "test", addresses, topics, sequence=sequence
    )


def stop(sequence: int) -> rpc.StopReplicaRequest:
    topics = [rpc.StopTopic(TOPIC, TOPIC_ID, [rpc.StopRow(n, 0) for n in range(REPLICAS)])]
    return rpc.StopReplicaRequest(0, 1, 1, 1, 1_000, "test", True, topics, sequence)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallCluster]:
    """Broker 1 with a record in each of its replicas, and a slow disk."""
    async with SmallCluster(tmp_path) as running:
        await running.start(1)
        engine, disk = running.brokers[1].engine, DiskTime()
        await engine.commands.leader_and_isr(grant(1, *range(REPLICAS)))
        for number in range(REPLICAS):
            await engine.serving.produce(TOPIC, number, batch("v"), acks="all", timeout_ms=5_000)
        engine.commands.clock = disk
        for name in ("open", "delete", "to_stray"):
            monkeypatch.setattr(engine.logs, name, partial(disk.slow, getattr(engine.logs, name)))
        yield running


async def counts_while(cluster: SmallCluster, working: asyncio.Task[rpc.CommandResponse]) -> int:
    """Return how many different numbers of replicas others see until the work ends."""
    seen = set[int]()
    while not working.done():
        await asyncio.sleep(0)
        seen.add(len(cluster.brokers[1].engine.replicas))
    assert {code for codes in (await working).codes for code in codes} <= {rpc.NO_ERROR}
    return len(seen)


def directories(cluster: SmallCluster) -> list[str]:
    return sorted(path.name for path in (cluster.root / "1").glob(f"{TOPIC}-*"))


async def test_others_are_served_while_replicas_are_deleted(cluster: SmallCluster) -> None:
    deleting = asyncio.create_task(cluster.brokers[1].engine.commands.stop_replica(stop(2)))

    assert await counts_while(cluster, deleting) == REPLICAS // 2
    await cluster.brokers[1].engine.removals.finish()
    assert directories(cluster) == []


async def test_others_are_served_while_replicas_are_set_aside_and_come_back(
    cluster: SmallCluster,
) -> None:
    commands = cluster.brokers[1].engine.commands

    dropping = asyncio.create_task(commands.leader_and_isr(grant(2)))
    assert await counts_while(cluster, dropping) == REPLICAS // 2
    assert len(directories(cluster)) == REPLICAS
    assert all(name.endswith("-stray") for name in directories(cluster))

    restoring = asyncio.create_task(commands.leader_and_isr(grant(3, *range(REPLICAS))))
    assert await counts_while(cluster, restoring) == REPLICAS // 2
    assert directories(cluster) == sorted(f"{TOPIC}-{number}" for number in range(REPLICAS))


async def test_a_deletion_ends_with_the_incarnation_that_it_is_for(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    deleting = asyncio.create_task(broker.engine.commands.stop_replica(stop(2)))
    await asyncio.sleep(0)
    broker.state.incarnation += 1

    with pytest.raises(StaleIncarnation):
        await deleting
    assert len(broker.engine.replicas) == REPLICAS - 2


async def test_a_grant_that_is_overtaken_while_it_sets_aside_leaves_the_others(
    cluster: SmallCluster,
) -> None:
    broker = cluster.brokers[1]
    dropping = asyncio.create_task(broker.engine.commands.leader_and_isr(grant(2)))
    await asyncio.sleep(0)
    left = len(broker.engine.replicas)
    late = LateRole(TopicPartition(TOPIC, 0), TOPIC_ID, 1, "the disk is full", 0)
    broker.engine.commands.late_roles.refused(late)
    later = msgspec.structs.replace(grant(3, REPLICAS - 1), is_init=False)
    await broker.engine.commands.leader_and_isr(later)
    await dropping

    assert 0 < left < REPLICAS
    assert len(broker.engine.replicas) == left
    assert broker.engine.commands.late_roles.oldest_first() == [late]


async def test_a_replica_that_is_deleted_meanwhile_is_not_set_aside(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    dropping = asyncio.create_task(broker.engine.commands.leader_and_isr(grant(2)))
    await asyncio.sleep(0)
    await broker.engine.commands.stop_replica(stop(3))
    await dropping
    await broker.engine.removals.finish()

    assert len(broker.engine.replicas) == 0
    assert 0 < len(directories(cluster)) < REPLICAS
