"""The chunks of a self-healing and their targets, over a real ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest

from leadline_common.failed_brokers import failed_broker_path
from leadline_common.tasks import TASK_PREFIX, TaskState
from leadline_common.zk.session import ZkSession
from tests.support.healing import (
    LATER,
    SOON,
    avoids,
    avoids_in,
    down,
    failures,
    healing_in_chunks,
    is_calm,
    replicas,
    set_interval,
    until_a_chunk_runs,
    until_noted,
    until_target,
)
from tests.support.reassigning import Followers, audit_records, post_reassignment
from tests.support.services.controller_rig import Rig, create
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.slow


async def test_chunks_that_have_not_begun_are_cancelled_when_the_broker_returns(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller, healing = await healing_in_chunks(rig)
    (begun, *queued) = list(healing.chunks())
    assert queued, "there must be something to cancel"
    await rig.brokers[1].register()
    await until(lambda: list(healing.chunks()) == [begun], "the others are cancelled")
    async with Followers(rig, zk_session):
        await until(lambda: is_calm(controller), "the one that ran is finished")
    assert (await failures(controller))[0]["outcome"] == "partly_healed"
    assert begun.node.state is TaskState.DONE
    assert {task.node.state for task in queued} == {TaskState.CANCELLED}
    assert not avoids(controller, 1)


async def test_a_second_failure_does_not_wait_for_what_still_runs_of_the_first(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller, healing = await healing_in_chunks(rig)
    await rig.brokers[1].register()
    await until(lambda: len(list(healing.chunks())) == 1, "the others are cancelled")
    await rig.brokers[1].leave()
    await until(lambda: len(list(healing.chunks())) == 2, "the rest is queued again")
    async with Followers(rig, zk_session):
        await until(lambda: is_calm(controller), "all chunks are over")
    second, first = await failures(controller)
    assert (first["outcome"], second["outcome"]) == ("partly_healed", "healed")
    assert first["partitions_moved"] + second["partitions_moved"] == first["partitions"]
    assert (second["chunks"], second["chunks_over"]) == (1, 1)


async def test_partitions_get_another_target_when_the_one_they_were_to_get_dies_too(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(5, **SOON, failed_broker_budget_percent=50)
    await create(controller, partitions=15, replication_factor=2)
    elected = controller.leadership.active_controller
    assert elected is not None
    async with Followers(rig, zk_session, but=[2]):
        await rig.brokers[1].stop()
        await until_target(controller, 2)
        # What only 1 and 2 had could not be healed at all if 2 stopped before another has it.
        await until(
            lambda: all(
                partition.state is not None and not {1, 2}.issuperset(partition.state.isr)
                for _, partition in elected.image.partitions()
            ),
            "another has what only 1 and 2 had",
        )
        await rig.brokers[2].stop()
        await until(lambda: avoids(controller, 1), "the first is healed")
        await until(lambda: avoids(controller, 2), "and so is the second")
        await until(lambda: is_calm(controller), "all chunks are over")


async def test_partitions_get_another_target_when_the_one_without_replicas_dies(
    rig: Rig, zk_session: ZkSession
) -> None:
    """Nothing of an empty broker is to be healed, so it has no chunk that says that it is dead."""
    controller = await rig.up(3, **SOON, failed_broker_budget_percent=50)
    await create(controller, partitions=6, replication_factor=2)
    await rig.add_brokers(4)
    await rig.settled(controller)
    async with Followers(rig, zk_session, but=[4]):
        await rig.brokers[1].stop()
        await until_target(controller, 4)
        await rig.brokers[4].stop()
        await until(lambda: avoids(controller, 1), "the first is healed")
        await until(lambda: is_calm(controller), "all chunks are over")
    assert avoids(controller, 4)
    course = [
        (record.entry.kind, record.entry.resource["task"])
        for record in await audit_records(zk_session)
        if record.entry.kind in ("task_launched", "task_over")
    ]
    first, second, instead = (f"{number:010}" for number in range(3))
    assert course.index(("task_over", instead)) < course.index(("task_launched", second))
    assert course[0] == ("task_launched", first)


async def test_a_running_chunk_that_loses_its_leader_holds_up_no_other_chunk(
    rig: Rig, zk_session: ZkSession
) -> None:
    options = SOON | {"failed_broker_chunk_partitions": 1, "failed_broker_budget_percent": 50}
    controller = await rig.up(6, **options)
    await create(controller, "first", replica_assignment={"0": [1, 2]})
    await create(controller, "second", replica_assignment={"0": [1, 3]})
    await rig.brokers[1].stop()
    await until_a_chunk_runs(controller, "first")
    await rig.brokers[2].stop()
    async with Followers(rig, zk_session):
        await until(lambda: avoids_in(controller, "second", 1), "the other chunk is done")
    assert 1 in replicas(controller, "first")[0]


async def test_a_chunk_that_nobody_can_take_over_holds_up_no_other_chunk(
    rig: Rig, zk_session: ZkSession
) -> None:
    """Every other live broker has a replica already, so that there is no other target."""
    options = SOON | {"failed_broker_chunk_partitions": 1, "failed_broker_budget_percent": 50}
    controller = await rig.up(4, **options)
    await create(controller, "everywhere", replica_assignment={"0": [1, 2, 3]})
    await create(controller, "narrow", replica_assignment={"0": [1, 2]})
    await rig.brokers[1].stop()
    await until_a_chunk_runs(controller, "everywhere")
    await rig.brokers[4].stop()
    async with Followers(rig, zk_session):
        await until(lambda: avoids_in(controller, "narrow", 1), "the other chunk is done")
    assert {1, 4} <= {*replicas(controller, "everywhere")[0]}


async def test_two_dead_brokers_of_one_partition_are_replaced_one_after_the_other(
    rig: Rig, zk_session: ZkSession
) -> None:
    """The second dead broker is in the target of the first task, which is no reason to retarget."""
    controller = await rig.up(5, **LATER, failed_broker_budget_percent=50)
    await create(controller, replica_assignment={"0": [1, 2, 3], "1": [2, 3, 1], "2": [3, 1, 2]})
    await asyncio.gather(rig.brokers[1].stop(), rig.brokers[2].stop())
    await until_noted(zk_session, 1, 2)
    await set_interval(controller, 0)
    async with Followers(rig, zk_session):
        await until(lambda: avoids(controller, 1), "the first is healed")
        await until(lambda: avoids(controller, 2), "and so is the second")
        await until(lambda: is_calm(controller), "all chunks are over")
    tasks = (await controller.http.get("/v1/tasks/history")).json()["tasks"]
    assert [(task["state"], task["outcome"]["done"]) for task in tasks] == [("done", 3)] * 2


async def test_a_partition_without_a_leader_holds_up_nobody_elses_healing(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(4, **SOON, failed_broker_budget_percent=50)
    await create(controller, "lonely", replica_assignment={"0": [1]})
    await create(controller, replica_assignment={"0": [1, 3], "1": [3, 1], "2": [1, 2]})
    async with Followers(rig, zk_session):
        await rig.brokers[1].stop()
        await until(lambda: avoids(controller, 1), "all that can be healed is")
    assert replicas(controller, "lonely")[0] == (1,)
    await until_noted(zk_session, 1)


async def test_a_partition_that_an_operator_moves_waits_for_the_end_of_that(
    rig: Rig, zk_session: ZkSession
) -> None:
    """It needs the dead broker, so it ends when the operator cancels it. The way back does not."""
    controller = await rig.up(5, **LATER)
    await create(controller, replica_assignment={"0": [1, 2, 3], "1": [1, 2, 3]})
    await rig.brokers[1].stop()
    await until_noted(zk_session, 1)
    task = await post_reassignment(controller, {("orders", 0): [1, 2, 4]}, algorithm="legacy")
    elected = controller.leadership.active_controller
    assert elected is not None
    async with Followers(rig, zk_session):
        await set_interval(controller, 300)
        await until(lambda: 1 not in replicas(controller)[1], "the other partition is healed")
        await until(lambda: not list(elected.healing.chunks()), "its chunk is over")
        assert (await down(controller))[1]["state"] == "waiting"
        (_, chunk) = (await controller.http.get("/v1/tasks")).json()["tasks"]
        assert (chunk["kind"], chunk["state"]) == ("heal", "done")
        answer = await controller.http.delete(f"/v1/tasks/{task['id']}")
        assert answer.status_code == 202, answer.text
        await until(lambda: avoids(controller, 1), "nothing is assigned to the dead broker")
        await until(lambda: is_calm(controller), "all chunks are over")
    (row,) = await failures(controller)
    assert (row["outcome"], row["partitions_moved"]) == ("healed", 2)


async def test_what_was_written_by_hand_holds_up_nobodys_healing(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(5, **SOON)
    await create(controller, partitions=10, replication_factor=2)
    await zk_session.create(failed_broker_path(1), b"down, I think")
    for details in (
        b'{"broker": [1], "partitions": 7}',
        b'{"partitions": {"orders": "all"}}',
        b"{}",
    ):
        task = b'{"kind": "heal", "state": "preparing", "details": ' + details + b"}"
        await zk_session.create(TASK_PREFIX, task, sequence=True)
    async with Followers(rig, zk_session):
        await rig.brokers[1].stop()
        await until(lambda: avoids(controller, 1), "nothing is assigned to the dead broker")
        await until(lambda: is_calm(controller), "all chunks are over")
