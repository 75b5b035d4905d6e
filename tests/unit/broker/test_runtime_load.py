"""The load of replicas over a window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.replication.partition import Traffic
from leadline_broker.runtime.serving.load import LoadMeter, ReplicaLoad
from leadline_common.slices import SLICE
from tests.support.manual_clock import ManualClock
from tests.unit.broker.small_cluster import SmallCluster, batch, three

WINDOW_MS = 60_000
SIZE = len(batch("v"))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


def meter(cluster: SmallCluster, broker: int, clock: ManualClock) -> LoadMeter:
    """Return a meter of a broker's replicas, by a clock that the test moves."""
    engine = cluster.brokers[broker].engine
    configuration = cluster.brokers[broker]._configuration
    return LoadMeter(
        broker,
        configuration=configuration,
        replicas=engine.replicas,
        logs=engine.logs,
        clock=clock,
    )


async def row(of: LoadMeter) -> ReplicaLoad:
    (found,) = (await of.report()).partitions
    return found


async def test_what_comes_in_and_is_read_is_counted(cluster: SmallCluster) -> None:
    clock = ManualClock()
    leader, follower = meter(cluster, 1, clock), meter(cluster, 2, clock)
    await cluster.produce(1, "v")
    await cluster.produce(1, "v", acks="all")
    await cluster.read(1)
    await cluster.read(1, offset=1)

    led, followed = await row(leader), await row(follower)

    assert (led.is_leader, led.bytes_in, led.records_in) == (True, 2 * SIZE, 2)
    assert (led.size_bytes, led.bytes_out) == (2 * SIZE, 3 * SIZE)
    assert (followed.is_leader, followed.bytes_in, followed.records_in) == (False, 2 * SIZE, 2)
    assert (followed.size_bytes, followed.bytes_out) == (2 * SIZE, 0)


async def test_the_totals_tell_what_was_produced_from_what_was_replicated(
    cluster: SmallCluster,
) -> None:
    clock = ManualClock()
    leader, follower = meter(cluster, 1, clock), meter(cluster, 2, clock)
    await cluster.produce(1, "v", acks="all")
    await cluster.read(1)

    led, followed = await leader.totals(), await follower.totals()

    assert (led.broker_id, led.leaders, led.replicas) == (1, 1, 1)
    assert (led.produced_bytes, led.produced_records, led.replicated_bytes) == (SIZE, 1, 0)
    assert (led.fetched_bytes, led.size_bytes) == (SIZE, SIZE)
    assert (followed.leaders, followed.replicas) == (0, 1)
    assert (followed.produced_bytes, followed.produced_records) == (0, 0)
    assert (followed.replicated_bytes, followed.fetched_bytes) == (SIZE, 0)


async def test_only_what_is_in_the_window_counts(cluster: SmallCluster) -> None:
    clock = ManualClock()
    load = meter(cluster, 1, clock)
    await cluster.produce(1, "v")
    clock.advance(WINDOW_MS // 2)
    await load.sample()
    await cluster.produce(1, "v")
    clock.advance(WINDOW_MS // 2)
    await load.sample()
    assert (await row(load)).records_in == 2

    clock.advance(WINDOW_MS // 2)
    await load.sample()
    assert (await row(load)).records_in == 1
    clock.advance(WINDOW_MS // 2)
    await load.sample()

    assert (await row(load)).records_in == 0
    assert (await row(load)).size_bytes == 2 * SIZE


async def test_the_window_and_the_disk_are_told(cluster: SmallCluster) -> None:
    clock = ManualClock()
    load = meter(cluster, 1, clock)
    clock.advance(1_500)

    report = await load.report()

    assert report.window_end_ms == clock.wall_ms()
    assert report.window_end_ms - report.window_start_ms == 1_500
    assert 0 < report.disk_free_bytes <= report.disk_total_bytes
    assert report.broker_id == 1


class Stored:
    """A replica that leads, and has appended one record."""

    topic, topic_id = "t", "id"
    replica = SimpleNamespace(role=Role.LEADER)
    log = SimpleNamespace(size_bytes=10)
    traffic = Traffic(7, 1, 3)

    def __init__(self, partition: int) -> None:
        self.partition = partition


class ManyReplicas:
    """Stands in for the replicas of a broker."""

    def __init__(self) -> None:
        self._all = [Stored(number) for number in range(5 * SLICE)]
        self.all = self.ordered = lambda: self._all

    def __contains__(self, _: object) -> bool:
        return True


@pytest.mark.parametrize(("work", "passes"), [("sample", 1), ("report", 1), ("totals", 2)])
async def test_the_load_of_very_many_replicas_is_measured_in_turns(
    work: str, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = LoadMeter(
        1,
        configuration=cast("Any", SimpleNamespace(current=SimpleNamespace(load_window_ms=1_000))),
        replicas=cast("Any", ManyReplicas()),
        logs=cast("Any", SimpleNamespace(space=lambda: (9, 8))),
        clock=ManualClock(),
    )
    turns = 0

    async def pause(_delay_s: float) -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(asyncio, "sleep", pause)
    await getattr(load, work)()
    assert turns == passes * 4

    totals = await load.totals()
    found = totals.produced_bytes, totals.produced_records, totals.fetched_bytes
    assert found == (35 * SLICE, 5 * SLICE, 15 * SLICE)
    assert (totals.leaders, totals.size_bytes) == (5 * SLICE, 50 * SLICE)
