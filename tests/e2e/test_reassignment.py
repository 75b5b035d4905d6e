"""S24 and the seed's example: partitions move between real brokers, whatever dies meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.cluster import Cluster, wait_until
from tests.support.load import read_partition
from tests.support.scenario import TOPIC, running_cluster
from tests.support.zk_history import ZkView, read_cluster

_RECORD = OutgoingRecord(b"." * 64 * 1024)
_THROTTLE = 1 << 20


async def reassign(
    cluster: Cluster, targets: dict[int, Sequence[int]], **options: Any
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
    for broker in cluster.supervisor.plan.brokers:
        for row in await cluster.replicas(broker.name):
            if (row["topic"], row["partition"]) == (TOPIC, 0):
                found[int(broker.name.rpartition("-")[2])] = row["role"]
    return found


async def test_the_printed_example_on_ten_brokers() -> None:
    """Seed 5, with brokers 1-10 for its 0-9; throttled, so that its steps can be seen."""
    settings = {"reassignment.max.concurrent.replica.movements": "2"}
    async with running_cluster(brokers=10, settings=settings) as cluster:
        topic = NewTopic(TOPIC, replica_assignment={0: (1, 2, 3, 4, 5)})
        await cluster.client.create_topic(topic)
        for _ in range(16):
            await cluster.client.produce(TOPIC, 0, [_RECORD])
        task = await reassign(cluster, {0: (6, 7, 8, 9, 10)}, throttle_bytes_per_s=_THROTTLE)
        seen = 0
        while (await task_of(cluster, task["id"]))["state"] == "running":
            before = (await read_cluster(cluster.file.zookeeper)).topics[TOPIC]
            roles = await hosts(cluster)
            after = (await read_cluster(cluster.file.zookeeper)).topics[TOPIC]
            if before == after:  # nothing was written while the brokers were asked
                adding = set(before.adding.get(0, ()))
                assert set(roles) - adding >= set(before.partitions[0]) - adding
                seen += bool(adding & roles.keys())
        assert seen > 3, "void: the steps went by unseen"
        view = await read_cluster(cluster.file.zookeeper)
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
