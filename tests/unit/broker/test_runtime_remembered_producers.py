"""A stranger who invents producer ids fills no broker's memory, and locks nobody out for long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_broker.runtime.replication.remembered_producers import (
    CROWDED_EXPIRATION_MS,
    RememberedProducers,
)
from leadline_client.errors import TooManyProducers
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, batch, three

MOST = 4


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path, producer_ids_max=MOST) as running:
        yield running


async def write(cluster: SmallCluster, producer: int, sequence: int = 0) -> None:
    await cluster.send(1, batch("v", producer=(producer, 0, sequence)), "all")


async def publish(cluster: SmallCluster, app: str, number: int) -> None:
    engine = cluster.brokers[1].engine
    staged = await engine.staging.stage(TOPIC, 0, bytes(batch("v")))
    await engine.publishing.publish(TOPIC, 0, app, number, [staged.staged_id], 5_000)


def remembered(cluster: SmallCluster) -> list[int]:
    return [broker.engine.producers.count_producers() for broker in cluster.brokers.values()]


async def test_new_producers_are_refused_beyond_the_limit_and_known_ones_go_on(
    cluster: SmallCluster,
) -> None:
    for producer in range(MOST):
        await write(cluster, producer)
    for producer in range(MOST, 3 * MOST):
        with pytest.raises(TooManyProducers, match=r"producer\.ids\.max is 4") as refused:
            await write(cluster, producer)
        assert refused.value.retriable

    await write(cluster, 0, sequence=1)
    await cluster.produce(1, "without a producer id")

    assert len(await cluster.read(1)) == MOST + 2
    assert remembered(cluster) == [MOST] * 3


async def test_new_applications_are_refused_beyond_the_limit_and_known_ones_go_on(
    cluster: SmallCluster,
) -> None:
    for app in range(MOST):
        await publish(cluster, f"app {app}", 1)
    with pytest.raises(TooManyProducers):
        await publish(cluster, "another one", 1)

    await publish(cluster, "app 0", 2)
    await write(cluster, 1)

    assert len(await cluster.read(1)) == MOST + 2


async def test_idle_producers_are_forgotten_early_where_there_are_many(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = [broker.engine for broker in cluster.brokers.values()]
    for producer in range(MOST // 2):
        await write(cluster, producer)
    for engine in brokers:
        await engine.maintenance.apply_retention()
    clock = brokers[0].maintenance.clock
    now_ms = clock.wall_ms()
    monkeypatch.setattr(type(clock), "wall_ms", lambda _: now_ms + CROWDED_EXPIRATION_MS + 60_000)
    for engine in brokers:
        await engine.maintenance.apply_retention()
    assert remembered(cluster) == [MOST // 2] * 3

    await write(cluster, MOST)
    for engine in brokers:
        await engine.maintenance.apply_retention()

    assert remembered(cluster) == [1] * 3


async def test_producers_are_counted_again_once_others_have_expired(cluster: SmallCluster) -> None:
    engine = cluster.brokers[1].engine
    await write(cluster, 1)
    limit = RememberedProducers(
        replicas=engine.replicas, clock=engine.maintenance.clock, most=lambda: 1
    )
    with pytest.raises(TooManyProducers):
        limit.admit_producer()

    engine.replicas.all()[0].log.producers.expire(2**62)

    await cluster.until(lambda: admits(limit), "the producer's place is free")


def admits(limit: RememberedProducers) -> bool:
    try:
        limit.admit_producer()
    except TooManyProducers:
        return False
    return True
