"""Tasks and intents: by request and by hand, checked, throttled, counted, over changes of terms."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leadline_common import rpc, znodes
from leadline_common.tasks import (
    TargetRow,
    TaskNode,
    decode_intent,
    intent_path,
    intents_path,
    task_path,
)
from leadline_common.zk.session import ZkSession
from tests.support.reassigning import (
    Followers,
    get,
    over,
    post_reassignment,
    read_topic,
    reassignment_queue_of,
)
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RecordingBroker, RunningController
from tests.support.services.zookeeper import until

ORDERS = ("orders", 0)


async def beat(
    controller: RunningController, broker: RecordingBroker, **changes: Any
) -> rpc.HeartbeatResponse:
    """Send what a broker says of itself, and return the answer."""
    answer = await controller.http.post(
        rpc.HEARTBEAT_PATH,
        content=msgspec.json.encode(broker.heartbeat(**changes)),
        headers={"Content-Type": rpc.JSON},
    )
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=rpc.HeartbeatResponse)


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
    await zk_session.create(task_path("no-task"), b"{")
    await until(lambda: elected.tasks.store.get("no-task") is not None, "they are found")
    wrong = await over(controller, "wrong")
    assert (wrong["state"], "[9] never registered" in wrong["reason"]) == ("failed", True)
    assert (await over(controller, "no-task"))["state"] == "failed"


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


async def test_the_throttle_belongs_to_the_task(rig: Rig, zk_session: ZkSession) -> None:
    """KIP-73: the lowest one holds, changed while it runs, gone with it, over a change of terms."""
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1], "1": [1]})
    assert (await beat(controller, rig.brokers[1])).moving_bytes_per_s == rpc.NO_THROTTLE
    slow = await post_reassignment(controller, {ORDERS: (2,)}, throttle_bytes_per_s=1000)
    fast = await post_reassignment(controller, {("orders", 1): (3,)}, throttle_bytes_per_s=5000)
    assert (await beat(controller, rig.brokers[1])).moving_bytes_per_s == 1000
    path = f"/v1/tasks/{slow['id']}"
    changed = await controller.http.patch(path, json={"throttle_bytes_per_s": 9000})
    assert changed.json()["throttle_bytes_per_s"] == 9000
    assert (await beat(controller, rig.brokers[1])).moving_bytes_per_s == 5000
    await controller.retire()
    controller.resume()
    await rig.settled(controller)
    assert (await beat(controller, rig.brokers[1])).moving_bytes_per_s == 5000
    async with Followers(rig, zk_session):
        await over(controller, slow["id"])
        await over(controller, fast["id"])
    assert (await beat(controller, rig.brokers[1])).moving_bytes_per_s == rpc.NO_THROTTLE
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
