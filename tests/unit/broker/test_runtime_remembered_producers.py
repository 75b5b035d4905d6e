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
from tests.support.manual_clock import ManualClock
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, batch, three

MOST = 4
DAY = 86_400_000


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


def manual_clock(cluster: SmallCluster) -> ManualClock:
    """Give the periodic work of all brokers one clock."""
    clock = ManualClock()
    for broker in cluster.brokers.values():
        broker.engine.maintenance.clock = clock
    return clock


async def maintain(cluster: SmallCluster) -> None:
    for broker in cluster.brokers.values():
        await broker.engine.maintenance.apply_retention()


def applications(cluster: SmallCluster) -> list[int]:
    return [broker.engine.producers.count_applications() for broker in cluster.brokers.values()]


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
    cluster: SmallCluster,
) -> None:
    clock = manual_clock(cluster)
    for producer in range(MOST // 2):
        await write(cluster, producer)
    await maintain(cluster)
    clock.advance(CROWDED_EXPIRATION_MS + 60_000)
    await maintain(cluster)
    assert remembered(cluster) == [MOST // 2] * 3

    await write(cluster, MOST)
    await maintain(cluster)

    assert remembered(cluster) == [1] * 3


async def test_a_producer_is_remembered_for_a_day_and_an_application_for_a_week(
    cluster: SmallCluster,
) -> None:
    """However old their records are (1970 here): they may be from an archive."""
    clock = manual_clock(cluster)
    await cluster.send(1, batch("v", producer=(7, 0, 0)), "all")
    await publish(cluster, "app", 1)
    await maintain(cluster)

    clock.advance(DAY)
    await maintain(cluster)
    assert remembered(cluster) == [1] * 3
    clock.advance(1)
    await maintain(cluster)
    assert remembered(cluster) == [0] * 3

    clock.advance(6 * DAY - 1)
    await maintain(cluster)
    assert applications(cluster) == [1] * 3
    clock.advance(1)
    await maintain(cluster)
    assert applications(cluster) == [0] * 3


async def test_who_writes_is_remembered_when_the_wall_clock_is_set_forward(
    cluster: SmallCluster,
) -> None:
    """Forgotten, a producer or an application could write its last batch again (R15)."""
    clock = manual_clock(cluster)
    await write(cluster, 1)
    await publish(cluster, "app", 1)
    await maintain(cluster)

    clock.step_wall(3_650 * DAY)
    await maintain(cluster)

    assert remembered(cluster) == [1] * 3
    assert applications(cluster) == [1] * 3


async def test_who_wrote_while_the_wall_clock_was_ahead_is_forgotten_in_time(
    cluster: SmallCluster,
) -> None:
    """Otherwise they would take the places of others for as long as the clock was ahead."""
    clock = manual_clock(cluster)
    clock.step_wall(3_650 * DAY)
    for producer in range(MOST):
        await write(cluster, producer)
    await maintain(cluster)

    clock.step_wall(-3_650 * DAY)
    clock.advance(CROWDED_EXPIRATION_MS + 60_000)
    await maintain(cluster)

    assert remembered(cluster) == [0] * 3


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
