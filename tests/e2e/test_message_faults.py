"""S15: what brokers and controllers say to each other is late, lost, repeated or out of order."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from leadline_client.wire import NewTopic
from leadline_common.rpc import REPLICA_FETCH_PATH
from tests.support.faults.faults import kill, moved_away
from tests.support.faults.impaired import KINDS, impaired
from tests.support.faults.scenario import TOPIC, loaded, running_cluster

SETTINGS = {"zookeeper.session.timeout.ms": "3000"}


@pytest.mark.scenario("S15")
@pytest.mark.parametrize("seconds", [6.0, pytest.param(120.0, marks=pytest.mark.soak)])
async def test_s15_fetch_answers_and_orders(seconds: float, seeded: Random) -> None:
    async with (
        running_cluster(settings=SETTINGS) as cluster,
        impaired(cluster, seeded) as channel,
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        fetches = channel.seen[REPLICA_FETCH_PATH]
        channel.paths = set(channel.seen)  # fetches, heartbeats, and all orders so far
        await asyncio.sleep(seconds / 2)
        victim = await running.leader(seeded.randrange(6))
        led = await running.led_by(victim)
        await kill(running, victim)
        await moved_away(running, victim, led)
        cluster.restart(victim)
        await asyncio.sleep(seconds / 2)
        assert channel.seen[REPLICA_FETCH_PATH] > fetches, "void: no fetch came through"
        assert set(channel.done) == set(KINDS), f"void: only {dict(channel.done)}"
        channel.paths = ()
        await running.full_isr()
        await running.load.progress()
        await running.verify()
