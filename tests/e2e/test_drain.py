"""A broker is drained under load, and then stopped: no produce request fails."""

from __future__ import annotations

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.scenario import TOPIC, loaded, running_cluster
from tests.support.services.cluster import wait_until

pytestmark = pytest.mark.slow


async def test_a_drained_broker_has_nothing_left_and_stops_unnoticed() -> None:
    async with running_cluster(brokers=4) as cluster, loaded(cluster, NewTopic(TOPIC, 6, 3)) as s:
        await s.full_isr()
        victim = await s.leader(0)
        number = int(victim.rpartition("-")[2])
        dry = await cluster.post(
            "controller-1", f"/v1/brokers/{number}/drain", json={"dry_run": True}
        )
        assert dry.json()["details"]["leaders"] == len(await s.led_by(victim))
        task = (await cluster.post("controller-1", f"/v1/brokers/{number}/drain", json={})).json()

        async def done() -> bool:
            found = (await cluster.get("controller-1", f"/v1/tasks/{task['id']}")).json()
            assert found["state"] not in ("failed", "cancelled")
            return bool(found["state"] == "done")

        async def empty() -> bool:
            return not await cluster.replicas(victim)

        await wait_until(done, "the drain is done", 60)
        await wait_until(empty, "nothing is left on the broker")
        assert (await cluster.get("controller-1", f"/v1/brokers/{number}/can-stop")).json()[
            "can_stop"
        ]
        await s.full_isr()
        assert await cluster.terminate(victim) == 0
        await s.load.progress()
        assert s.load.errors == {}
        cluster.restart(victim)
        await cluster.until_ready(victim)
        await s.verify()
