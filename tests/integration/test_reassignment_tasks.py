"""Tasks and intents: by request and by hand, checked, throttled, counted, over changes of terms."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from leadline_common import rpc, znodes
from leadline_common.tasks import (
    TargetRow,
    TaskNode,
    decode_intent,
    intent_path,
    intents_path,
    task_path,
)
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp
from leadline_common.zk.session import ZkSession
from tests.support.reassigning import (
    Followers,
    audit_records,
    get,
    over,
    post_reassignment,
    read_topic,
    reassignment_queue_of,
)
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RecordingBroker, RunningController
from tests.support.services.zookeeper import until

ORDERS = ("orders", 0)


async def beat(
    controller: RunningController, broker: RecordingBroker, **changes: Any
) -> rpc.HeartbeatResponse:
    """Send what a broker says of itself, and return the answer."""
    return await controller.heartbeat(broker.heartbeat(**changes))


async def replicas(session: ZkSession, number: int = 0) -> tuple[int, ...]:
    return (await read_topic(session, "orders")).partitions[number]


async def test_an_intent_written_by_hand_is_carried_out(rig: Rig, zk_session: ZkSession) -> None:
    """Replication V3, section F: the value may be a mere list of brokers."""
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2], "1": [1, 2]})
    await zk_session.create(intents_path("orders"))
    async with Followers(rig, zk_session):
        await zk_session.create(intent_path(*ORDERS), b"[3, 2]")
        await until(lambda: ORDERS in rig.brokers[3].roles, "3 has a role")
        await until(lambda: not len(reassignment_queue_of(controller)), "it is done")
        await zk_session.ensure_path(intents_path("orders"))
        body = b'{"version": 1, "replicas": [3, 1]}'
        await zk_session.create(intent_path("orders", 1), body)
        await until(lambda: ("orders", 1) in rig.brokers[3].roles, "3 has another role")
        await until(lambda: not len(reassignment_queue_of(controller)), "it is done too")
    assert [await replicas(zk_session, p) for p in (0, 1)] == [(3, 2), (3, 1)]
    assert await zk_session.get_children(znodes.PARTITIONS_REASSIGNED) == []


async def test_the_start_of_an_intent_by_hand_is_kept_for_cancelling(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1]})
    await zk_session.create(intents_path("orders"))
    await zk_session.create(intent_path(*ORDERS), b"[3]")
    await until(lambda: ORDERS in rig.brokers[3].roles, "3 has a role")
    data, _ = await zk_session.get(intent_path(*ORDERS))
    found = decode_intent(data)
    meant = (await read_topic(zk_session, "orders")).topic_id
    assert (found.start, found.topic_id) == ((1,), meant), "it is not for a later topic"
    await controller.retire()
    controller.resume()
    await rig.settled(controller)
    assert (await controller.http.delete("/v1/reassignments/orders/0")).status_code == 202
    await until(lambda: not len(reassignment_queue_of(controller)), "it is back")
    assert await replicas(zk_session) == (1,)


async def test_an_intent_removed_by_hand_undoes_the_step(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(reconcile_interval_ms=200)
    await create(controller, replica_assignment={"0": [1]})
    await post_reassignment(controller, {ORDERS: (3,)})
    await until(lambda: ORDERS in rig.brokers[3].roles, "3 is being added")
    _, stat = await zk_session.get(intent_path(*ORDERS))
    await zk_session.delete(intent_path(*ORDERS), stat.version)
    await until(lambda: ORDERS not in rig.brokers[3].roles, "3 is dropped again")
    await until(lambda: not len(reassignment_queue_of(controller)), "nothing is left to do")
    assert await replicas(zk_session) == (1,)


async def test_a_task_written_by_hand_is_kafkas_json(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2]})
    by_hand = b'{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[3,2]}]}'
    async with Followers(rig, zk_session):
        await zk_session.create(task_path("friday"), by_hand)
        elected = controller.leadership.active_controller
        assert elected is not None
        await until(lambda: elected.tasks.store.get("friday") is not None, "it is found")
        assert (await over(controller, "friday"))["state"] == "done"
    assert await replicas(zk_session) == (3, 2)
    await zk_session.create(task_path("wrong"), by_hand.replace(b"[3,2]", b"[3,9]"))
    await until(lambda: elected.tasks.store.get("wrong") is not None, "it is found")
    wrong = await over(controller, "wrong")
    assert (wrong["state"], "[9] never registered" in wrong["reason"]) == ("failed", True)
    (refusal,) = await refusals(zk_session)
    assert (refusal.kind, refusal.resource["task"]) == ("task_refused", "wrong")
    past = await get(controller, "/v1/tasks/history")
    assert {row["id"]: row["state"] for row in past["tasks"]}["wrong"] == "failed"


async def refusals(session: ZkSession) -> list[znodes.AuditEntry]:
    """Return the audit entries of what was refused."""
    return [r.entry for r in await audit_records(session) if r.entry.outcome == "refused"]


async def test_defect_14_a_set_in_the_parent_node_is_a_task(
    rig: Rig, zk_session: ZkSession
) -> None:
    """KIP-435 and Kafka have the whole set as the value of `/admin/reassign_partitions`."""
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2]})
    by_hand = b'{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[3,2]}]}'
    root = znodes.REASSIGN_PARTITIONS
    elected = controller.leadership.active_controller
    assert elected is not None
    async with Followers(rig, zk_session):
        await zk_session.set(root, by_hand, ANY_VERSION)
        await until(lambda: len(list(elected.tasks.store)) == 1, "it is found")
        (task,) = elected.tasks.store
        assert (await over(controller, task.id))["state"] == "done"
    assert await replicas(zk_session) == (3, 2)
    assert (await zk_session.get(root))[0] == b""
    await controller.retire()
    await zk_session.set(root, by_hand.replace(b"[3,2]", b"[3,9]"), ANY_VERSION)
    controller.resume()
    await rig.settled(controller)
    later = controller.leadership.active_controller
    assert later is not None
    last = list(later.tasks.store)[-1]
    assert "[9] never registered" in (await over(controller, last.id))["reason"]
    assert (await zk_session.get(root))[0] == b""


@pytest.mark.parametrize("path", [znodes.REASSIGN_PARTITIONS, task_path("no-task")])
async def test_defect_14_what_is_no_task_is_refused_and_taken_away(
    rig: Rig, zk_session: ZkSession, path: str
) -> None:
    await rig.up(brokers=1)
    if path == znodes.REASSIGN_PARTITIONS:
        await zk_session.set(path, b"{", ANY_VERSION)
    else:
        await zk_session.create(path, b"{")
    (refusal,) = await wait_until(lambda: refusals(zk_session), "it is refused")
    assert (refusal.kind, refusal.resource["path"]) == ("task_refused", path)
    assert "cannot be read" in refusal.reason
    assert await zk_session.get_children(znodes.REASSIGN_PARTITIONS) == []
    assert (await zk_session.get(znodes.REASSIGN_PARTITIONS))[0] == b""


async def test_defect_14_a_set_that_is_too_large_for_a_task_keeps_no_controller_from_its_work(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=1)
    await controller.retire()
    row = b'{"topic":"orders","partition":%d,"replicas":[1]}'
    rows = b",".join(row % number for number in range(17_000))
    by_hand = b'{"version":1,"partitions":[%s]}' % rows
    await zk_session.set(znodes.REASSIGN_PARTITIONS, by_hand, ANY_VERSION)
    controller.resume()
    await rig.settled(controller)
    (refusal,) = await refusals(zk_session)
    assert (refusal.kind, "too large" in refusal.reason) == ("task_refused", True)
    assert (await zk_session.get(znodes.REASSIGN_PARTITIONS))[0] == b""


async def test_defect_14_a_node_with_children_is_not_refused_over_and_over(
    rig: Rig, zk_session: ZkSession
) -> None:
    """ZooKeeper does not delete it, so that every attempt fails."""
    controller = await rig.up(brokers=1, reconcile_interval_ms=3_600_000)
    await controller.retire()
    await zk_session.create(task_path("no-task"), b"{")
    await zk_session.create(f"{task_path('no-task')}/child")
    controller.resume()
    await rig.settled(controller)
    tried = {"name": "tried", "dry_run": True}
    with capture_logs() as logged:
        # What is in the queue before a request is done before its answer.
        for _ in range(6):
            await controller.http.post("/v1/topics", json=tried)
    attempts = [row for row in logged if row["event"] == "task refused"]
    assert len(attempts) < 3, "a reconciliation may have tried it once more"


async def test_defect_14_an_intent_with_a_child_is_refused_once_the_child_is_gone(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(reconcile_interval_ms=200)
    await create(controller, replica_assignment={"0": [1, 2]})
    await controller.retire()
    await zk_session.create(intents_path("orders"))
    await zk_session.create(intent_path(*ORDERS), b"{")
    await zk_session.create(f"{intent_path(*ORDERS)}/child")
    controller.resume()
    await rig.settled(controller)
    await zk_session.delete(f"{intent_path(*ORDERS)}/child", ANY_VERSION)
    (refusal,) = await wait_until(lambda: refusals(zk_session), "it is refused")
    assert refusal.kind == "reassignment_refused"


@pytest.mark.parametrize("found", ["by-a-watch", "at-an-election"])
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("0", b"not JSON", "cannot be read"),
        ("0", b"[]", "names no broker"),
        ("0", b"[3, 3]", "one twice"),
        ("0", b"[3, 77]", "[77] never registered"),
        ("0", b'{"target": [3, 2], "start": [1, 1, 2], "cancelled": true}', "one twice"),
        ("0", b'{"target": [3, 2], "start": [1, 77], "cancelled": true}', "[77] never registered"),
        ("first", b"[3]", "no partition"),
        ("00", b"[3]", "no partition"),
    ],
)
async def test_defect_14_an_intent_that_cannot_be_executed_is_refused_and_taken_away(
    rig: Rig, zk_session: ZkSession, name: str, value: bytes, reason: str, found: str
) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2]})
    if found == "at-an-election":
        await controller.retire()
    await zk_session.create(intents_path("orders"))
    await zk_session.create(f"{intents_path('orders')}/{name}", value)
    if found == "at-an-election":
        controller.resume()
        await rig.settled(controller)
    (refusal,) = await wait_until(lambda: refusals(zk_session), "it is refused")
    assert refusal.kind == "reassignment_refused"
    assert reason in refusal.reason
    assert refusal.resource.get("partition") == (0 if name == "0" else None)
    assert await zk_session.get_children(znodes.PARTITIONS_REASSIGNED) == []
    assert await replicas(zk_session) == (1, 2)


async def test_intents_go_with_their_topic(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(reconcile_interval_ms=300)
    await create(controller, replica_assignment={"0": [1], "1": [1]})
    task = await post_reassignment(controller, {ORDERS: (3,), ("orders", 1): (1,)})
    await until(lambda: ORDERS in rig.brokers[3].roles, "3 is being added")
    answer = await controller.http.delete("/v1/topics/orders")
    assert answer.json()["complete"]
    assert (await over(controller, task["id"]))["partitions"]["failed"] == 2
    assert await zk_session.get_children(znodes.PARTITIONS_REASSIGNED) == []
    assert ORDERS not in rig.brokers[3].roles


async def test_more_intents_than_one_transaction_can_delete_go_with_their_topic(
    rig: Rig, zk_session: ZkSession
) -> None:
    topic = "o" * 200
    await rig.up(1)
    await rig.controllers[0].retire()
    await zk_session.create(intents_path(topic))
    for start in range(0, 4_000, 1_000):
        numbers = range(start, start + 1_000)
        await zk_session.multi([CreateOp(intent_path(topic, n), b"[1]") for n in numbers])
    rig.controllers[0].resume()

    async def gone() -> bool:
        return await zk_session.get_children(znodes.PARTITIONS_REASSIGNED) == []

    await wait_until(gone, "they are dropped")


async def test_an_intent_that_somebody_replaced_at_once_is_carried_out(
    rig: Rig, zk_session: ZkSession
) -> None:
    """The new node has the name and the version of the one that the controller knows."""
    controller = await rig.up(reconcile_interval_ms=300)
    await create(controller, replica_assignment={"0": [1]})
    task = await post_reassignment(controller, {ORDERS: (2,)})
    await until(lambda: ORDERS in rig.brokers[2].roles, "2 is being added")
    path = intent_path(*ORDERS)
    await zk_session.multi([DeleteOp(path, ANY_VERSION), CreateOp(path, b"[3]")])
    async with Followers(rig, zk_session, but=[2]):
        await until(lambda: not len(reassignment_queue_of(controller)), "it is done")
    assert await replicas(zk_session) == (3,)
    assert (await over(controller, task["id"]))["partitions"]["failed"] == 1


async def test_an_intent_of_a_task_that_was_cancelled_is_cancelled(
    rig: Rig, zk_session: ZkSession
) -> None:
    """Such as one whose write had no answer, so that the task ended without it."""
    controller = await rig.up(reconcile_interval_ms=300)
    await create(controller, replica_assignment={"0": [1]})
    task = await post_reassignment(controller, {ORDERS: (2,)})
    data, _ = await zk_session.get(intent_path(*ORDERS))
    await controller.http.delete(f"/v1/tasks/{task['id']}")
    assert (await over(controller, task["id"]))["state"] == "cancelled"
    await zk_session.ensure_path(intents_path("orders"))
    await zk_session.create(intent_path(*ORDERS), data)

    async def gone() -> bool:
        return await zk_session.get_children(znodes.PARTITIONS_REASSIGNED) == []

    await wait_until(gone, "it is undone")
    assert await replicas(zk_session) == (1,)


async def test_a_partition_at_its_target_is_done_at_once(rig: Rig) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2]})
    epoch = rig.brokers[1].roles[ORDERS].leader_epoch
    task = await post_reassignment(controller, {ORDERS: (1, 2)})
    assert (task["state"], task["partitions"]["done"]) == ("done", 1)
    assert rig.brokers[1].roles[ORDERS].leader_epoch == epoch


async def test_a_dry_run_changes_nothing(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2]})
    row = {"topic": "orders", "partition": 0, "replicas": [3, 1]}
    body = {"partitions": [row], "dry_run": True}
    answer = await controller.http.post("/v1/reassignments", json=body)
    assert (answer.status_code, answer.json()["id"]) == (200, None)
    assert await zk_session.get_children(znodes.REASSIGN_PARTITIONS) == []
    assert (await get(controller, "/v1/tasks"))["tasks"] == []


@pytest.mark.parametrize(
    ("row", "code", "says"),
    [
        ({"topic": "nothing"}, 40403, "nothing"),
        ({"partition": 7}, 40402, "no partition 7"),
        ({"replicas": []}, 40002, "empty"),
        ({"replicas": [1, 1]}, 40002, "twice"),
        ({"replicas": [1, 9]}, 40002, "[9] never registered"),
        ({"replicas": [1, 2, 3]}, 40002, "3 replicas instead of 2"),
    ],
    ids=["topic", "partition", "empty", "duplicate", "unknown-broker", "count"],
)
async def test_what_kafkas_tools_refuse_is_refused(
    rig: Rig, zk_session: ZkSession, row: dict[str, Any], code: int, says: str
) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2]})
    good = {"topic": "orders", "partition": 0, "replicas": [2, 3]}
    body = {"partitions": [good | row], "allow_replication_factor_change": False}
    answer = await controller.http.post("/v1/reassignments", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (code // 100, code)
    assert says in answer.json()["message"]
    assert await zk_session.get_children(znodes.REASSIGN_PARTITIONS) == []


async def test_more_than_a_node_can_hold_is_refused_with_what_fits(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    name = "t" * 200
    await create(controller, name, partitions=6000, replication_factor=1)
    rows = [{"topic": name, "partition": p, "replicas": [1]} for p in range(6000)]
    answer = await controller.http.post("/v1/reassignments", json={"partitions": rows})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "split it into requests of at most" in answer.json()["message"]


async def rates(controller: RunningController, rig: Rig, broker: int) -> dict[str, int] | None:
    """Return the rate of each task on a broker, as the answer to its heartbeat says."""
    moving = (await beat(controller, rig.brokers[broker])).moving
    return None if moving is None else {row.task: row.bytes_per_s for row in moving}


async def set_ceilings(controller: RunningController, **ceilings: int) -> None:
    names = {
        "cluster": "reassignment.throttle.bytes.per.s",
        "healing": "failed.broker.throttle.bytes.per.s",
    }
    body = {"set": {names[name]: str(rate) for name, rate in ceilings.items()}}
    answer = await controller.http.patch("/v1/configs", json=body)
    assert answer.status_code == 200, answer.text


async def test_defect_15_every_task_has_its_own_throttle_below_the_ceilings(rig: Rig) -> None:
    controller = await rig.up(4, failed_broker_interval_ms=100)
    await create(controller, replica_assignment={"0": [1], "1": [1]})
    await create(controller, "healed", replica_assignment={"0": [1, 4]})
    slow = (await post_reassignment(controller, {ORDERS: (2,)}, throttle_bytes_per_s=100_000))["id"]
    fast = await post_reassignment(
        controller, {("orders", 1): (3,)}, throttle_bytes_per_s=1_000_000
    )
    reassignments = controller.service.active_controller().reassignments
    await until(lambda: reassignments.in_flight == 2, "both are moving")

    async def shown(task: str) -> tuple[int | None, int | None, str | None]:
        found = await get(controller, f"/v1/tasks/{task}")
        return found["throttle_bytes_per_s"], found["allotted_bytes_per_s"], found["bound_by"]

    assert await shown(slow) == (100_000, 100_000, "own")
    assert await shown(fast["id"]) == (1_000_000, 1_000_000, "own")
    assert await rates(controller, rig, 1) == {slow: 100_000, fast["id"]: 1_000_000}
    assert await rates(controller, rig, 2) == {slow: 100_000}

    await set_ceilings(controller, cluster=500_000)
    assert await rates(controller, rig, 1) == {slow: 100_000, fast["id"]: 400_000}
    assert await rates(controller, rig, 3) == {fast["id"]: 500_000}
    assert await shown(fast["id"]) == (1_000_000, 400_000, "cluster_ceiling")

    await rig.brokers[4].stop()
    await until(lambda: reassignments.in_flight == 3, "its replica is being healed")
    (heal,) = {task.id for task in controller.service.active_controller().healing.chunks()}
    assert await rates(controller, rig, 1) == {heal: 450_000, slow: 25_000, fast["id"]: 25_000}
    assert await shown(heal) == (None, 450_000, "cluster_ceiling")
    await set_ceilings(controller, healing=200_000)
    assert await rates(controller, rig, 1) == {heal: 200_000, slow: 100_000, fast["id"]: 200_000}
    assert await shown(heal) == (None, 200_000, "healing_ceiling")
    await set_ceilings(controller, cluster=-1, healing=-1)
    assert await shown(heal) == (None, None, None)
    assert (await rates(controller, rig, 1) or {})[heal] == rpc.NO_THROTTLE


async def test_the_throttle_belongs_to_the_task(rig: Rig, zk_session: ZkSession) -> None:
    """KIP-73: changed while it runs, gone with it, over a change of terms."""
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1], "1": [1]})
    assert await rates(controller, rig, 1) is None
    slow = await post_reassignment(controller, {ORDERS: (2,)}, throttle_bytes_per_s=1000)
    fast = await post_reassignment(controller, {("orders", 1): (3,)}, throttle_bytes_per_s=5000)
    await until(lambda: controller.service.active_controller().reassignments.in_flight == 2, "both")
    assert await rates(controller, rig, 1) == {slow["id"]: 1000, fast["id"]: 5000}
    path = f"/v1/tasks/{slow['id']}"
    changed = await controller.http.patch(path, json={"throttle_bytes_per_s": 9000})
    assert changed.json()["throttle_bytes_per_s"] == 9000
    assert await rates(controller, rig, 1) == {slow["id"]: 9000, fast["id"]: 5000}
    await controller.retire()
    controller.resume()
    await rig.settled(controller)
    assert await rates(controller, rig, 1) == {slow["id"]: 9000, fast["id"]: 5000}
    async with Followers(rig, zk_session):
        await over(controller, slow["id"])
        await over(controller, fast["id"])
    assert await rates(controller, rig, 1) is None
    changed = await controller.http.patch(path, json={"throttle_bytes_per_s": 1})
    assert (changed.status_code, changed.json()["error_code"]) == (409, 40981)


async def test_progress_is_what_leaders_say(rig: Rig) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1], "1": [1]})
    task = await post_reassignment(controller, {ORDERS: (2,), ("orders", 1): (3,)})
    await until(lambda: ORDERS in rig.brokers[2].roles, "2 has a role")
    rows = [rpc.MovingRow("orders", 0, 2, 900, 1000), rpc.MovingRow("orders", 1, 3, 500, 1000)]
    await beat(controller, rig.brokers[1], moving=rows)
    shown = await get(controller, f"/v1/tasks/{task['id']}")
    assert (shown["bytes_left"], shown["bytes_total"], shown["eta_ms"]) == (1400, 2000, None)
    await beat(controller, rig.brokers[1], moving=[rpc.MovingRow("orders", 0, 2, 100, 1000)])
    shown = await get(controller, f"/v1/tasks/{task['id']}")
    assert shown["bytes_left"] == 100
    assert shown["rate_bytes_per_s"] > 0
    assert shown["eta_ms"] >= 0
    listed = (await get(controller, "/v1/reassignments?topic=orders"))["reassignments"]
    assert [row["bytes_left"] for row in listed] == [100, 0]
    assert shown["partitions"] == {"total": 2, "done": 0, "failed": 0, "moving": 2, "waiting": 0}


async def test_generated_tasks_run_one_after_another(rig: Rig, zk_session: ZkSession) -> None:
    """KIP-46: chunks; one that has not begun is cancelled without having moved anything."""
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1], "1": [1], "2": [1]})
    for number in range(3):
        chunk = TaskNode((TargetRow("orders", number, (2,)),), is_auto_generated=True)
        await zk_session.create(
            f"{znodes.REASSIGN_PARTITIONS}/", znodes.encode_value(chunk), sequence=True
        )
    book = controller.service.active_controller().tasks.store
    await until(lambda: len(list(book)) == 3, "all are known")
    await until(lambda: ORDERS in rig.brokers[2].roles, "the first has begun")
    tasks = (await get(controller, "/v1/tasks"))["tasks"]
    assert [task["state"] for task in tasks] == ["running", "accepted", "accepted"]
    await controller.http.delete(f"/v1/tasks/{tasks[1]['id']}")
    assert (await over(controller, tasks[1]["id"]))["state"] == "cancelled"
    async with Followers(rig, zk_session):
        assert (await over(controller, tasks[2]["id"]))["state"] == "done"
    assert [await replicas(zk_session, p) for p in range(3)] == [(2,), (1,), (2,)]


async def test_the_latest_tasks_are_kept(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(tasks_kept=2)
    await create(controller, replica_assignment={"0": [1]})
    for _ in range(4):
        await post_reassignment(controller, {ORDERS: (1,)})
    shown = [task["id"] for task in (await get(controller, "/v1/tasks"))["tasks"]]
    assert shown == ["0000000002", "0000000003"]
    assert await zk_session.get_children(znodes.REASSIGN_PARTITIONS) == shown
    assert (await controller.http.get("/v1/tasks/0000000000")).status_code == 404
