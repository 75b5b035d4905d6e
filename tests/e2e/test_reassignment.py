"""S24 and KIP-435's example: partitions move between real brokers, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.checks.zk_history import ZkView, read_cluster
from tests.support.faults.faults import expired, kill
from tests.support.faults.load import read_partition
from tests.support.faults.scenario import (
    SETTLE_S,
    TOPIC,
    Scenario,
    loaded,
    rounds,
    running_cluster,
)
from tests.support.services.cluster import Cluster, wait_until

_RECORD = OutgoingRecord(b"." * 64 * 1024)
_THROTTLE = 1 << 19
_STANDSTILL = 1_000
"""Bytes per second: less than is appended, so that no replica catches up."""


async def reassign(
    cluster: Cluster, targets: Mapping[int, Sequence[int]], **options: Any
) -> dict[str, Any]:
    """Ask for a reassignment of the loaded topic, and return the task."""
    rows = [
        {"topic": TOPIC, "partition": number, "replicas": list(replicas)}
        for number, replicas in targets.items()
    ]
    body = {"partitions": rows, **options}
    return await cluster.client.administer("POST", "/v1/reassignments", body)


async def task_of(cluster: Cluster, task_id: str) -> dict[str, Any]:
    """Return what the controller says of a task."""
    return await cluster.client.administer("GET", f"/v1/tasks/{task_id}")


async def throttle(cluster: Cluster, task_id: str, bytes_per_s: int | None) -> None:
    """Change the throttle of a task; None removes it."""
    body = {"throttle_bytes_per_s": bytes_per_s}
    await cluster.client.administer("PATCH", f"/v1/tasks/{task_id}", body)


async def task_is_over(cluster: Cluster, task_id: str, deadline_s: float) -> dict[str, Any]:
    """Wait for the end of a task, and return it."""

    async def over() -> dict[str, Any] | None:
        task = await task_of(cluster, task_id)
        return task if task["state"] in ("done", "cancelled", "failed") else None

    return await wait_until(over, f"task {task_id} is over", deadline_s)


def walked(view: ZkView, partition: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Return what a partition's row of the topic node was made by each step, by the audit."""
    rows = [
        entry.after[str(partition)]
        for entry in view.audit
        if entry.kind == "reassignment_step" and str(partition) in entry.after
    ]
    return [(row["replicas"], row["adding"], row["removing"]) for row in rows]


async def hosts(cluster: Cluster) -> dict[int, str]:
    """Return the role that each broker says it has in partition 0."""
    found = {}
    brokers = cluster.supervisor.layout.brokers
    answers = await asyncio.gather(*(cluster.replicas(broker.name) for broker in brokers))
    for broker, rows in zip(brokers, answers, strict=True):
        for row in rows:
            if (row["topic"], row["partition"]) == (TOPIC, 0):
                found[int(broker.name.rpartition("-")[2])] = row["role"]
    return found


async def test_the_printed_example_on_ten_brokers() -> None:
    """KIP-435, with brokers 1-10 for its 0-9; throttled, so that its steps can be seen."""
    settings = {"reassignment.max.concurrent.replica.movements": "2"}
    async with running_cluster(brokers=10, settings=settings) as cluster:
        topic = NewTopic(TOPIC, replica_assignment={0: (1, 2, 3, 4, 5)})
        await cluster.client.create_topic(topic)
        for _ in range(16):
            await cluster.client.produce(TOPIC, 0, [_RECORD])
        task = await reassign(cluster, {0: (6, 7, 8, 9, 10)}, throttle_bytes_per_s=_THROTTLE)
        seen = 0
        while (await task_of(cluster, task["id"]))["state"] == "running":
            before = (await read_cluster(cluster)).topics[TOPIC]
            roles = await hosts(cluster)
            after = (await read_cluster(cluster)).topics[TOPIC]
            if before == after:  # nothing was written while the brokers were asked
                adding = set(before.adding.get(0, ()))
                assert set(roles) - adding >= set(before.partitions[0]) - adding
                seen += bool(adding & roles.keys())
        assert seen > 3, "void: the steps went by unseen"
        view = await read_cluster(cluster)
        assert walked(view, 0) == [
            ([6, 1, 2, 3, 4, 5], [6], []),
            ([6, 1, 2, 3, 4, 5], [], []),
            ([6, 7, 1, 2, 3, 4, 5], [7], [1, 2]),
            ([6, 7, 3, 4, 5], [], []),
            ([6, 7, 8, 9, 3, 4, 5], [8, 9], [3, 4]),
            ([6, 7, 8, 9, 5], [], []),
            ([6, 7, 8, 9, 10, 5], [10], [5]),
            ([6, 7, 8, 9, 10], [], []),
        ]
        assert view.states[TOPIC, 0][0].leader == 6
        assert not view.problems()

        async def only_the_target() -> bool:
            roles = await hosts(cluster)
            return roles == {6: "leader"} | dict.fromkeys((7, 8, 9, 10), "follower")

        await wait_until(only_the_target, "the old replicas are gone")
        records = await read_partition(cluster.client, TOPIC, 0)
        assert len(records.records) == 16


HOMES = {p: (1 + p % 3, 1 + (p + 1) % 3, 1 + (p + 2) % 3) for p in range(12)}
AWAY = {p: (4 + p % 2, 5 - p % 2, 1 + p % 3) for p in range(12)}
_SLOWLY = {
    "reassignment.max.concurrent.replica.movements": "1",
    "reassignment.max.concurrent.partition.movements": "1",
    "audit.outbox.keep.entries": "1000000",
    "audit.outbox.max.entries": "1000000",
}


def _source(row: dict[str, Any]) -> int | None:
    """Return a broker that a partition leaves, and does not lead."""
    leaving = set(row["current"]) - set(row["target"]) - {row["leader"]}
    return min(leaving, default=None)


def _target(row: dict[str, Any]) -> int | None:
    """Return a broker that is being added."""
    return next(iter(row["adding"]), None)


def _leader(row: dict[str, Any]) -> int | None:
    """Return the leader of a partition that is in a step."""
    return row["leader"] if row["leader"] >= 0 else None


VICTIMS: dict[str, Callable[[dict[str, Any]], int | None]] = {
    "source": _source,
    "target": _target,
    "leader": _leader,
}


async def victim_of(running: Scenario, kind: str) -> str:
    """Wait for a step that has a broker of this kind, and return its name."""
    if kind == "controller":
        return await running.cluster.active_controller()

    async def found() -> str | None:
        listed = await running.cluster.client.administer("GET", "/v1/reassignments")
        for row in listed["reassignments"]:
            if row["adding"] and (broker := VICTIMS[kind](row)) is not None:
                return f"broker-{broker}"
        return None

    return await wait_until(found, f"a step has a {kind} to kill")


def steps_in(view: ZkView) -> int:
    """Count the steps that were written."""
    return sum(entry.kind == "reassignment_step" for entry in view.audit)


async def killed_in_a_step(running: Scenario, task_id: str, kind: str) -> None:
    """Kill a process that has a part in a step; the steps go on, before it returns or after.

    A throttle makes the step last until then.
    """
    victim = await victim_of(running, kind)
    await kill(running, victim)
    steps = steps_in(await running.view())
    if kind == "controller":
        await running.cluster.active_controller(not_in=[victim])
    else:
        await expired(running, victim)
    running.cluster.restart(victim)
    await running.cluster.until_ready(victim)
    await throttle(running.cluster, task_id, None)

    async def go_on() -> bool:
        return steps_in(await running.view()) > steps

    await wait_until(go_on, "the next step is written")


async def at_rest(running: Scenario, replicas: Mapping[int, tuple[int, ...]]) -> None:
    """Fail unless exactly these are the replicas, and nothing is half-way."""
    node = (await running.view()).topics[TOPIC]
    assert dict(node.partitions) == replicas
    assert not node.adding
    assert not node.removing


async def moved(
    running: Scenario, targets: Mapping[int, tuple[int, ...]], kind: str, skip: int
) -> None:
    """Reassign all, and kill a process after `skip` steps or more; they arrive all the same."""
    begun = steps_in(await running.view())
    rate = None if skip else _STANDSTILL
    task = await reassign(running.cluster, targets, throttle_bytes_per_s=rate)

    async def gone_on() -> bool:
        return steps_in(await running.view()) >= begun + skip

    await wait_until(gone_on, f"{skip} steps are done")
    await throttle(running.cluster, task["id"], _STANDSTILL)
    await killed_in_a_step(running, task["id"], kind)
    done = await task_is_over(running.cluster, task["id"], SETTLE_S)
    assert (done["state"], done["partitions"]["done"]) == ("done", len(targets))
    await at_rest(running, targets)
    await running.load.progress()


@pytest.mark.slow
@pytest.mark.scenario("S24")
@rounds(quick=1, soak=8)
async def test_s24_processes_die_in_the_middle_of_reassignments(rounds: int) -> None:
    settings = {"heartbeat.interval.ms": "200", **_SLOWLY}
    async with (
        running_cluster(brokers=5, controllers=2, settings=settings) as cluster,
        loaded(cluster, NewTopic(TOPIC, replica_assignment=HOMES)) as running,
    ):
        for turn in range(rounds):
            for number, kind in enumerate(("controller", *VICTIMS)):
                await moved(running, HOMES if number % 2 else AWAY, kind, skip=5 * turn)
        task = await reassign(cluster, AWAY)
        await victim_of(running, "target")
        await cluster.client.administer("DELETE", f"/v1/tasks/{task['id']}")
        active = await cluster.active_controller()
        await kill(running, active)
        done = await task_is_over(cluster, task["id"], SETTLE_S)
        cluster.restart(active)
        assert (done["state"], done["partitions"]["done"]) == ("cancelled", 0)
        await at_rest(running, HOMES)
        await running.verify()
