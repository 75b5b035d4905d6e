"""A broker dies for good: its replicas are recreated on the others, under load (KIP-46)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.faults import expired, kill
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.slow

RACKS = ("a", "b", "c")
INTERVAL_MS = 5_000
IN_FLIGHT = 20
SETTINGS = {
    "failed.broker.interval.ms": str(INTERVAL_MS),
    "failed.broker.chunk.partitions": "40",
    "reassignment.max.concurrent.partition.movements": str(IN_FLIGHT),
    # A busy machine is to expire no other broker's session, which would be a failure as well.
    "zookeeper.session.timeout.ms": "6000",
}
PATIENT = {**SETTINGS, "failed.broker.interval.ms": "60000"}
TWO, THREE = "two-copies", "three-copies"


async def ask(cluster: Cluster, path: str, **params: str) -> dict[str, Any]:
    """Ask the administration."""
    return await cluster.client.administer("GET", path, params=params)


async def failures(cluster: Cluster, broker: int) -> list[dict[str, Any]]:
    """Return the rows of the history about a failed broker, newest first."""
    found: list[dict[str, Any]] = (await ask(cluster, "/v1/failed-brokers/history"))["failures"]
    return [row for row in found if row["broker"] == broker]


async def replicas(cluster: Cluster) -> dict[tuple[str, int], tuple[list[int], list[int]]]:
    """Return replicas and ISR of every partition."""
    document = await ask(cluster, "/v1/metadata")
    return {
        (topic, row[0]): (row[4], row[3])
        for topic, found in document["topics"].items()
        for row in found["partitions"]
    }


async def in_flight(cluster: Cluster) -> int:
    """Return how many partitions are in a step of their reassignment now."""
    listed = await ask(cluster, "/v1/reassignments")
    return sum(row["state"] in ("expanding", "shrinking") for row in listed["reassignments"])


async def heals(running: Scenario, victim: int) -> int:
    """Wait until nothing is assigned to a broker; return the most that was in flight at once."""
    most = 0

    async def healed() -> bool:
        nonlocal most
        most = max(most, await in_flight(running.cluster))
        found = await replicas(running.cluster)
        return all(victim not in assigned for assigned, _ in found.values())

    await wait_until(healed, f"nothing is assigned to broker {victim}", 120.0)
    return most


async def test_a_dead_broker_is_replaced_under_load_whoever_rules() -> None:
    async with running_cluster(brokers=5, controllers=2, settings=SETTINGS, racks=RACKS) as cluster:
        await cluster.client.create_topic(NewTopic(TWO, 200, 2))
        await cluster.client.create_topic(NewTopic(THREE, 194, 3))
        async with loaded(cluster, NewTopic(TOPIC, 6, 3)) as running:
            before = await replicas(cluster)
            lost = sum(3 in assigned for assigned, _ in before.values())
            await kill(running, "broker-3")
            await expired(running, "broker-3")
            await chunks_are_queued(cluster)
            await kill(running, await cluster.active_controller())
            assert await heals(running, 3) <= IN_FLIGHT
            await everything_is_replicated(cluster, before)
            (row,) = await history_is_complete(cluster, 3)
            assert row["outcome"] == "healed"
            assert (row["partitions"], row["partitions_moved"]) == (lost, lost)
            assert row["queued_at"] - row["failed_at"] >= INTERVAL_MS
            assert row["chunks"] == row["chunks_over"] > 1
            await running.verify()


async def test_a_restart_within_the_interval_moves_nothing_and_the_history_says_so() -> None:
    async with (
        running_cluster(brokers=3, settings=PATIENT) as cluster,
        loaded(cluster, NewTopic(TOPIC, 6, 2)) as running,
    ):
        before = {name: assigned for name, (assigned, _) in (await replicas(cluster)).items()}
        await kill(running, "broker-2")
        await expired(running, "broker-2")
        cluster.restart("broker-2")
        await wait_until(lambda: returned(cluster, 2), "the history says that it is back", 30.0)
        (row,) = await failures(cluster, 2)
        assert (row["outcome"], row["chunks"]) == ("cancelled", 0)
        after = {name: assigned for name, (assigned, _) in (await replicas(cluster)).items()}
        assert after == before
        await running.verify()


async def returned(cluster: Cluster, broker: int) -> bool:
    """Tell whether the latest failure of a broker is over."""
    rows = await failures(cluster, broker)
    return bool(rows) and rows[0]["returned_at"] is not None


async def chunks_are_queued(cluster: Cluster) -> None:
    """Wait until the broker counts as dead, and its chunks are tasks."""

    async def queued() -> bool:
        found = (await ask(cluster, "/v1/failed-brokers"))["brokers"]
        return any(row["chunks"] for row in found)

    await wait_until(queued, "chunks are queued", 30.0)


async def history_is_complete(cluster: Cluster, broker: int) -> list[dict[str, Any]]:
    """Wait until no failure of a broker is being healed any more."""

    async def complete() -> list[dict[str, Any]]:
        rows = await failures(cluster, broker)
        return rows if all(row["over_at"] for row in rows) else []

    return await wait_until(complete, "the history is complete", 30.0)


async def everything_is_replicated(
    cluster: Cluster, before: dict[tuple[str, int], tuple[list[int], list[int]]]
) -> None:
    """Wait until every partition has as many in-sync replicas as before, no rack twice in vain."""

    async def replicated() -> bool:
        found = await replicas(cluster)
        return all(len(isr) == len(before[name][0]) for name, (_, isr) in found.items())

    await wait_until(replicated, "every partition is fully replicated", 60.0)
    racks = {1: "a", 2: "b", 4: "a", 5: "b"}  # rack c died with broker 3
    for name, (assigned, _) in (await replicas(cluster)).items():
        used = Counter(racks[broker] for broker in assigned)
        assert len(assigned) == len(before[name][0])
        assert max(used.values()) == -(-len(assigned) // 2), f"{name} is on {assigned}"
