"""Self-healing over a real ZooKeeper; brokers take every command, and replicas catch up."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from leadline_common import znodes
from leadline_common.failed_brokers import decode_failed_broker, failed_broker_path
from leadline_common.tasks import TASK_PREFIX, TaskState
from leadline_common.zk.session import ZkSession
from leadline_controller.domain.cluster import BrokerDown, BrokerUp
from leadline_controller.runtime.reassignment.events import HealingDue
from tests.support.reassigning import Followers, audit_records, post_reassignment
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import MortalStore, RunningController, active
from tests.support.services.zookeeper import until

SOON: dict[str, Any] = {"failed_broker_interval_ms": 300, "failed_broker_chunk_partitions": 3}
NEVER: dict[str, Any] = {**SOON, "failed_broker_interval_ms": -1}
LATER: dict[str, Any] = {**SOON, "failed_broker_interval_ms": 60_000}


def replicas(controller: RunningController, topic: str = "orders") -> dict[int, tuple[int, ...]]:
    return {n: p.replicas for n, p in controller.service.image().topics[topic].partitions.items()}


def avoids(controller: RunningController, broker: int) -> bool:
    """Tell whether no replica is assigned to a broker."""
    return controller.is_active and all(
        broker not in assigned for assigned in replicas(controller).values()
    )


def avoids_in(controller: RunningController, topic: str, broker: int) -> bool:
    """Tell whether no replica of a topic is assigned to a broker."""
    return all(broker not in assigned for assigned in replicas(controller, topic).values())


def is_calm(controller: RunningController) -> bool:
    """Tell whether nothing is left to be healed."""
    elected = controller.leadership.active_controller
    if elected is None or not controller.is_active:
        return False
    return not elected.healing.records.failed and not list(elected.healing.chunks())


async def until_a_chunk_runs(controller: RunningController, topic: str) -> None:
    """Wait until the first chunk runs, whose new replica lags; it is of this topic alone."""
    elected = controller.leadership.active_controller
    assert elected is not None
    await until(
        lambda: any(entry.is_running for entry in elected.reassignments),
        "the first chunk runs, and its new replica lags",
    )
    assert {entry.topic_partition.topic for entry in elected.reassignments} == {topic}


async def until_target(controller: RunningController, broker: int) -> None:
    """Wait until a broker is to take something over."""
    elected = controller.leadership.active_controller
    assert elected is not None
    await until(
        lambda: any(
            entry.state is not None and broker in entry.state.adding
            for entry in elected.reassignments
        ),
        f"{broker} is to take something over",
    )


async def until_noted(session: ZkSession, *brokers: int) -> None:
    """Wait until exactly these brokers are noted as failed."""
    wanted = sorted(map(str, brokers))

    async def noted() -> bool:
        return sorted(await session.get_children(znodes.FAILED_BROKERS)) == wanted

    await wait_until(noted, f"{wanted} are noted as failed", 20)


async def kinds(controller: RunningController, **wanted: Any) -> list[str]:
    answer = await controller.http.get("/v1/audit", params={"order": "oldest", **wanted})
    assert answer.status_code == 200, answer.text
    return [entry["kind"] for entry in answer.json()["entries"]]


async def until_kinds(controller: RunningController, *wanted: str) -> None:
    """Wait until the audit has exactly these entries about broker 1."""

    async def written() -> bool:
        return await kinds(controller, broker=1) == [*wanted]

    await wait_until(written, f"the audit has {wanted}", 20)


async def down(controller: RunningController) -> dict[int, dict[str, Any]]:
    """Return the brokers that are shown as down, by id."""
    answer = await controller.http.get("/v1/failed-brokers")
    assert answer.status_code == 200, answer.text
    return {row["id"]: row for row in answer.json()["brokers"]}


async def until_shown(controller: RunningController, states: dict[int, str]) -> None:
    """Wait until exactly these brokers are shown as down: a moment after ZooKeeper has it."""

    async def shown() -> bool:
        return {broker: row["state"] for broker, row in (await down(controller)).items()} == states

    await wait_until(shown, f"the controller shows {states}")


async def forget(controller: RunningController, broker: int) -> tuple[int, dict[str, Any]]:
    answer = await controller.http.delete(f"/v1/failed-brokers/{broker}")
    return answer.status_code, answer.json()


async def failures(controller: RunningController) -> list[dict[str, Any]]:
    answer = await controller.http.get("/v1/failed-brokers/history")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["failures"]
    return found


async def set_interval(controller: RunningController, interval_ms: int) -> None:
    body = {"set": {"failed.broker.interval.ms": str(interval_ms)}}
    answer = await controller.http.patch("/v1/configs", json=body)
    assert answer.status_code == 200, answer.text


async def test_the_replicas_of_a_dead_broker_are_rebuilt_on_others(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(5, **SOON)
    await create(controller, partitions=10, replication_factor=2)
    async with Followers(rig, zk_session):
        await rig.brokers[1].stop()
        await until(lambda: avoids(controller, 1), "nothing is assigned to the dead broker")
        await until(lambda: is_calm(controller), "all chunks are over")
    assert all(len(set(assigned)) == 2 for assigned in replicas(controller).values())
    load = Counter(broker for assigned in replicas(controller).values() for broker in assigned)
    assert max(load.values()) - min(load.values()) <= 1
    await until_noted(zk_session)
    await until_kinds(controller, "broker_failed", "healing_queued", "broker_healed")
    (row,) = await failures(controller)
    assert (row["broker"], row["outcome"], row["detected_by"]) == (1, "healed", "controller-1")
    assert (row["chunks"], row["chunks_over"]) == (2, 2)
    assert (row["partitions"], row["partitions_moved"]) == (4, 4)
    assert (
        row["failed_at"] + SOON["failed_broker_interval_ms"] <= row["queued_at"] <= row["over_at"]
    )
    tasks = (await controller.http.get("/v1/tasks/history")).json()["tasks"]
    assert [(task["kind"], task["state"]) for task in tasks] == [("heal", "done")] * 2


async def test_a_restart_within_the_interval_moves_nothing(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(5, **LATER)
    await create(controller, partitions=10, replication_factor=2)
    before = replicas(controller)
    incarnation = rig.brokers[1].incarnation
    await rig.brokers[1].leave()
    await until_noted(zk_session, 1)
    data, _ = await zk_session.get(failed_broker_path(1))
    assert decode_failed_broker(data).incarnation == incarnation
    await rig.brokers[1].register()
    await until_noted(zk_session)
    assert replicas(controller) == before
    assert await kinds(controller, broker=1) == ["broker_failed", "broker_returned"]
    (row,) = await failures(controller)
    assert (row["outcome"], row["chunks"]) == ("cancelled", 0)
    assert row["returned_at"] > row["failed_at"]


async def test_a_broker_that_has_not_registered_yet_has_not_failed(
    rig: Rig, zk_session: ZkSession
) -> None:
    await zk_session.ensure_path(znodes.broker_epoch_path(9))
    controller = await rig.up(2, **SOON)
    await rig.brokers[1].leave()
    await until_kinds(controller, "broker_failed")

    assert {row["broker"] for row in await failures(controller)} == {1}


async def test_the_time_of_the_failure_outlives_the_controller(
    rig: Rig, zk_session: ZkSession
) -> None:
    first = await rig.up(3, **LATER)
    second = await rig.controller(**LATER)
    await create(first, partitions=4, replication_factor=2)
    await rig.brokers[1].stop()
    await until_noted(zk_session, 1)
    noted, _ = await zk_session.get(failed_broker_path(1))
    await first.retire()
    await active([second])
    elected = second.leadership.active_controller
    assert elected is not None
    await until(lambda: 1 in elected.healing.records.failed, "the successor knows")
    assert (await zk_session.get(failed_broker_path(1)))[0] == noted


async def test_a_broker_that_died_while_nobody_ruled_is_noticed(
    rig: Rig, zk_session: ZkSession
) -> None:
    first = await rig.up(3, **LATER)
    await create(first, partitions=4, replication_factor=2)
    await first.retire()
    await rig.brokers[1].stop()
    await rig.controller(**LATER)
    await until_noted(zk_session, 1)


async def test_what_failed_while_healing_was_off_is_healed_when_it_is_switched_on(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(4, **NEVER)
    await create(controller, partitions=6, replication_factor=2)
    await rig.brokers[1].stop()
    await until_noted(zk_session, 1)
    assert not avoids(controller, 1)
    async with Followers(rig, zk_session):
        await set_interval(controller, 100)
        await until(lambda: avoids(controller, 1), "nothing is assigned to the dead broker")


async def test_chunks_that_have_not_begun_are_cancelled_when_the_broker_returns(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(5, **SOON)
    await create(controller, partitions=15, replication_factor=2)
    elected = controller.leadership.active_controller
    assert elected is not None
    await rig.brokers[1].leave()
    running = TaskState.RUNNING
    await until(
        lambda: any(task.node.state is running for task in elected.healing.chunks()), "one runs"
    )
    (begun, *queued) = list(elected.healing.chunks())
    assert queued, "there must be something to cancel"
    await rig.brokers[1].register()
    await until(lambda: list(elected.healing.chunks()) == [begun], "the others are cancelled")
    async with Followers(rig, zk_session):
        await until(lambda: is_calm(controller), "the one that ran is finished")
    assert (await failures(controller))[0]["outcome"] == "partly_healed"
    assert begun.node.state is TaskState.DONE
    assert {task.node.state for task in queued} == {TaskState.CANCELLED}
    assert not avoids(controller, 1)


async def test_a_second_failure_does_not_wait_for_what_still_runs_of_the_first(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(5, **SOON)
    await create(controller, partitions=15, replication_factor=2)
    elected = controller.leadership.active_controller
    assert elected is not None
    await rig.brokers[1].leave()
    await until(
        lambda: any(task.node.state is TaskState.RUNNING for task in elected.healing.chunks()),
        "a chunk runs",
    )
    await rig.brokers[1].register()
    await until(lambda: len(list(elected.healing.chunks())) == 1, "the others are cancelled")
    await rig.brokers[1].leave()
    await until(lambda: len(list(elected.healing.chunks())) == 2, "the rest is queued again")
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


async def test_healing_stops_where_more_have_failed_than_the_budget_allows(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(4, **LATER, failed_broker_budget_percent=30)
    await create(
        controller, replica_assignment={"0": [1, 3], "1": [3, 1], "2": [2, 4], "3": [4, 3]}
    )
    elected = controller.leadership.active_controller
    assert elected is not None
    await asyncio.gather(rig.brokers[1].leave(), rig.brokers[2].leave())
    await until(lambda: elected.healing.is_suspended, "the budget is used up")
    await set_interval(controller, 0)
    # Whatever that has set off is done before the answer to the next request.
    tried = await controller.http.post("/v1/topics", json={"name": "tried", "dry_run": True})
    assert tried.status_code == 200
    assert list(elected.healing.chunks()) == []
    ready = (await controller.http.get("/readyz")).text
    assert "healing is suspended" in ready
    assert "healing_suspended" in await kinds(controller)
    await rig.brokers[2].register()
    async with Followers(rig, zk_session):
        await until(lambda: not elected.healing.is_suspended, "the budget suffices again")
        await until(lambda: avoids(controller, 1), "the one that stayed away is healed")
    assert "healing_resumed" in await kinds(controller)


async def test_defect_11_a_broker_counts_against_the_budget_while_its_chunks_are_queued(
    rig: Rig, zk_session: ZkSession
) -> None:
    """One failure after the other must not heal on with half the brokers dead."""
    controller = await rig.up(4, **SOON, failed_broker_budget_percent=34)
    pairs = [(1, 3), (4, 1), (3, 1), (1, 4), (2, 3), (4, 2)]
    await create(controller, replica_assignment={str(p): pair for p, pair in enumerate(pairs)})
    elected = controller.leadership.active_controller
    assert elected is not None
    await rig.brokers[1].leave()
    await until(lambda: bool(list(elected.healing.chunks(1))), "the first is being healed")
    await until_noted(zk_session)  # all of it is queued: its record is gone
    await rig.brokers[2].leave()
    await until(lambda: elected.healing.is_suspended, "half the brokers are down")
    due = elected.healing.due_at(2)
    assert due is not None
    await until(lambda: elected.context.clock.wall_ms() > due, "the second counts as dead")
    await set_interval(controller, 0)
    # Whatever that has set off is done before the answer to the next request.
    tried = await controller.http.post("/v1/topics", json={"name": "tried", "dry_run": True})
    assert tried.status_code == 200
    assert list(elected.healing.chunks(2)) == []
    await until_noted(zk_session, 2)
    assert "brokers [1, 2] are down" in (await controller.http.get("/readyz")).text
    await rig.brokers[1].register()
    async with Followers(rig, zk_session):
        await until(lambda: not elected.healing.is_suspended, "the budget suffices again")
        await until(lambda: avoids(controller, 2), "the second is healed")


async def test_defect_11_a_dead_broker_without_replicas_does_not_suspend_healing_for_ever(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(4, **LATER, failed_broker_budget_percent=34)
    pairs = [(1, 3), (4, 1), (3, 4)]
    await create(controller, replica_assignment={str(p): pair for p, pair in enumerate(pairs)})
    elected = controller.leadership.active_controller
    assert elected is not None
    for broker in (1, 2):
        await rig.brokers[broker].leave()
    await until(lambda: elected.healing.is_suspended, "half the brokers are down")
    await set_interval(controller, 100)
    async with Followers(rig, zk_session):
        await until(lambda: avoids(controller, 1), "the one that has replicas is healed")

    async def are_healed() -> bool:
        return [row["state"] for row in (await down(controller)).values()] == ["healed"] * 2

    await wait_until(are_healed, "both are shown as healed", 20)


async def test_defect_12_a_healed_broker_is_shown_until_it_returns(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(5, **LATER)
    standby = await rig.controller(**LATER)
    await create(controller, partitions=10, replication_factor=2)
    assert await down(controller) == {}
    await rig.brokers[1].leave()
    await until_noted(zk_session, 1)
    waiting = (await down(controller))[1]
    assert (waiting["state"], waiting["partitions"]) == ("waiting", 4)
    assert "failed.broker.interval.ms" in waiting["waits_for"]
    status, refused = await forget(controller, 1)
    assert (status, refused["error_code"]) == (409, 40984)
    assert "4 partitions" in refused["message"]
    await set_interval(controller, 0)
    async with Followers(rig, zk_session):
        await until(lambda: is_calm(controller), "all chunks are over")
    refusal = "forget_broker"
    await until_kinds(controller, "broker_failed", refusal, "healing_queued", "broker_healed")
    healed = (await down(controller))[1]
    assert (healed["state"], healed["waits_for"]) == ("healed", None)
    assert (healed["partitions"], healed["partitions_moved"]) == (0, 4)
    assert (healed["chunks"], healed["chunks_queued"]) == ([], 2)
    assert healed["failed_at"] == waiting["failed_at"] < healed["queued_at"] <= healed["healed_at"]
    plan = (await controller.http.post("/v1/plans", json={"kind": "balance"})).json()
    assert plan["down"] == [1]
    await controller.retire()
    await active([standby])
    assert (await down(standby))[1] == healed, "another controller knows as much"
    await rig.brokers[1].register()

    async def is_gone() -> bool:
        return await down(standby) == {}

    await wait_until(is_gone, "it has returned", 20)
    assert await zk_session.get_children(znodes.DEAD_BROKERS) == []


async def test_defect_12_a_broker_that_will_not_return_is_forgotten(
    rig: Rig, zk_session: ZkSession
) -> None:
    """It may have failed while no controller saw it, and may return nevertheless."""
    first = await rig.up(4, **LATER)
    await create(first, replica_assignment={"0": [1, 2]})
    assert (await forget(first, 3))[0] == 409, "it is live"
    assert (await forget(first, 9))[0] == 404
    await first.retire()
    await rig.brokers[3].leave()
    await rig.brokers[4].stop()
    first.resume()
    await until_noted(zk_session, 3, 4)
    await until_shown(first, {3: "waiting", 4: "waiting"})
    status, forgotten = await forget(first, 4)
    assert (status, forgotten["id"]) == (200, 4)
    assert (await forget(first, 4))[0] == 404
    await set_interval(first, 0)
    await until_noted(zk_session)
    await until_shown(first, {3: "healed"})
    assert (await forget(first, 3))[0] == 200
    await first.retire()
    first.resume()
    await until(lambda: first.is_active, "it is active again")
    await rig.settled(first)
    assert await down(first) == {}
    await rig.brokers[3].register()
    await rig.settled(first)
    await rig.brokers[3].leave()
    await until_noted(zk_session)

    async def is_shown() -> bool:
        return [*await down(first)] == [3]

    await wait_until(is_shown, "it is a broker like any other", 20)
    assert await kinds(first, broker=4) == ["broker_failed", "broker_forgotten", "forget_broker"]


async def test_a_broker_that_returns_and_fails_at_once_has_failed_again(
    rig: Rig, zk_session: ZkSession
) -> None:
    """The healing may look at the brokers only when such a broker is gone again."""
    controller = await rig.up(4, **LATER)
    await rig.brokers[3].leave()
    await rig.brokers[4].stop()
    await until_noted(zk_session, 3, 4)
    await until_shown(controller, {3: "waiting", 4: "waiting"})
    assert (await forget(controller, 4))[0] == 200
    elected = controller.leadership.active_controller
    assert elected is not None
    for broker in (3, 4):
        again = znodes.BrokerRegistration(broker, "127.0.0.1", 1, "http://127.0.0.1:1", None, 7)
        elected.image.apply([BrokerUp(again), BrokerDown(broker)])
    elected.queue.trigger(HealingDue)
    await until_noted(zk_session, 3, 4)
    await until_shown(controller, {3: "waiting", 4: "waiting"})
    for broker in (3, 4):
        data, _ = await zk_session.get(failed_broker_path(broker))
        assert decode_failed_broker(data).incarnation == 7
        about = Counter(await kinds(controller, broker=broker))
        assert (about["broker_failed"], about["broker_returned"]) == (2, 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_controller_may_end_at_any_write_of_the_workflow(
    rig: Rig, zk_session: ZkSession, *, after: bool
) -> None:
    """Each term writes who is live, and then gets one write further."""
    options = {**NEVER, "failed_broker_chunk_partitions": 2}
    first = await rig.up(4, store_type=MortalStore, **options)
    await create(first, partitions=8, replication_factor=2)
    await rig.brokers[1].stop()
    await until_noted(zk_session, 1)
    await set_interval_by_hand(zk_session, 0)
    terms = 0
    async with Followers(rig, zk_session):
        while await cut_short(first, 2 if after else 3, after=after):
            terms += 1
            await first.retire()
            first.resume()
            await until(lambda: first.is_active, "it is active again")
    # Usually ten; what a term writes before its cut is set does not count.
    assert terms > 4
    assert avoids(first, 1)
    moved = [r for r in await audit_records(zk_session) if r.entry.kind == "reassignment_begun"]
    begun = [
        (topic, number)
        for record in moved
        for topic, rows in (record.entry.after or {}).items()
        for number in rows
    ]
    assert len(begun) == len(set(begun)), "nothing is moved twice"


async def set_interval_by_hand(session: ZkSession, interval_ms: int) -> None:
    """Switch healing on as an operator at ZooKeeper would."""
    configs = znodes.encode_configs({"failed.broker.interval.ms": str(interval_ms)})
    await session.set(znodes.CONFIG_CLUSTER, configs, -1)


async def cut_short(controller: RunningController, cut: int, *, after: bool) -> bool:
    """End a controller at its `cut`-th write from now on; False if it is done before."""
    store = controller.stores[-1]
    assert isinstance(store, MortalStore)
    store.dies_after_sending, store.writes_left = after, cut
    await until(lambda: store.writes_left <= 0 or is_calm(controller), "cut, or all is healed")
    return store.writes_left <= 0
