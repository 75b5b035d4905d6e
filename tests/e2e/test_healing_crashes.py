"""The active controller is killed between any two writes of a healing, as ZooKeeper sees them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import count

import httpx
import pytest

from leadline_client.wire import NewTopic
from tests.e2e.test_healing import everything_is_replicated, failures, heals, replicas
from tests.support.checks.invariants import stored_history
from tests.support.faults.faults import kill
from tests.support.faults.scenario import TOPIC, loaded, running_cluster
from tests.support.faults.zk_proxy import CrashPoints, put_before_controllers
from tests.support.services.cluster import Cluster, wait_until

SETTINGS = {"failed.broker.interval.ms": "1000", "failed.broker.chunk.partitions": "3"}
WORKFLOW = (b"/admin/failed_brokers/", b"/admin/reassign", b"/admin/partitions_reassigned/")


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_controller_is_killed_around_every_write_of_a_healing() -> None:
    """Each controller is killed at its second write, alternately before and after it."""
    async with (
        running_cluster(brokers=4, controllers=2, settings=SETTINGS) as cluster,
        AsyncExitStack() as proxies,
        loaded(cluster, NewTopic(TOPIC, 8, 3)) as running,
    ):
        points = await put_before_controllers(cluster, WORKFLOW, proxies)
        before = await replicas(cluster)
        lost = sorted(number for (_, number), (assigned, _) in before.items() if 3 in assigned)
        await kill(running, "broker-3")
        kills = await until_healed(cluster, points)
        await heals(running, 3)
        await everything_is_replicated(cluster, before)
        (row,) = await failures(cluster, 3)
        assert (row["outcome"], row["partitions_moved"]) == ("healed", len(lost))
        assert kills > row["chunks"] * 2, "at the least, its task and its first step"
        assert await begun(cluster) == lost, "nothing is moved twice"
        await running.verify()


async def until_healed(cluster: Cluster, points: dict[str, CrashPoints]) -> int:
    """Kill each controller at its second write, until one completes the healing."""
    for proxy in points.values():
        proxy.arm(2, after=False)
    for kills in count():
        ended: list[str] = []

        async def ended_or_over(ended: list[str] = ended) -> bool:
            ended[:] = [name for name, proxy in points.items() if proxy.ended.is_set()]
            return bool(ended) or await is_over(cluster)

        await wait_until(ended_or_over, "a controller is killed, or all is healed", 60.0)
        if not ended:
            return kills
        for name in ended:
            points[name].arm(2, after=kills % 2 == 0)
            cluster.restart(name)
    raise AssertionError


async def is_over(cluster: Cluster) -> bool:
    """Tell whether the history has the failure, and its end; False without an active controller."""
    answer = await cluster.get("broker-1", "/v1/failed-brokers/history")
    rows = answer.json()["failures"] if answer.status_code == httpx.codes.OK else []
    return bool(rows) and all(row["over_at"] for row in rows)


async def begun(cluster: Cluster) -> list[int]:
    """Return the partitions of all reassignments that were ever begun."""
    history = await stored_history(cluster, await cluster.active_controller())
    rows = [record.entry.after for record in history if record.entry.kind == "reassignment_begun"]
    return sorted(int(number) for row in rows for number in (row or {}).get(TOPIC, {}))
