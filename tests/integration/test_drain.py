"""Brokers that are to be taken out of service: may they stop, and how they are emptied."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from leadline_cli.commands.tasks import follow
from leadline_client.client import Client
from leadline_common import znodes
from leadline_common.tasks import TASK_PREFIX, TaskState
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.reassignment import drains as drain_module
from tests.integration.test_controlled_shutdown import request_shutdown
from tests.integration.test_controller_spine import audit, beat
from tests.support.reassigning import Followers, get, over, reassignment_queue_of
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import MortalStore, RunningController, read_state
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.slow

AR = {str(p): [1 + p % 3, 1 + (p + 1) % 3, 1 + (p + 2) % 3] for p in range(6)}


async def drain(
    controller: RunningController, broker: int, *, expected: int = 202, **body: Any
) -> dict[str, Any]:
    answer = await controller.http.post(f"/v1/brokers/{broker}/drain", json=body)
    assert answer.status_code == expected, answer.text
    found: dict[str, Any] = answer.json()
    return found


def led(rig: Rig, by: int, on: int = 2) -> int:
    return sum(row.leader == by for row in rig.brokers[on].roles.values())


async def test_a_broker_may_stop_while_nothing_is_lost_by_it(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment=AR)
    assert await get(controller, "/v1/brokers/1/can-stop") == {
        "broker": 1,
        "can_stop": True,
        "reasons": [],
    }
    await create(controller, "alone", replica_assignment={"0": [1]})
    await request_shutdown(controller, rig.brokers[2])
    found = await get(controller, "/v1/brokers/1/can-stop")
    assert not found["can_stop"]
    assert [(row["reason"], row["total"]) for row in found["reasons"]] == [
        ("no_successor", 1),
        ("below_min_insync", 6),
    ]
    assert found["reasons"][0]["partitions"] == [{"topic": "alone", "partition": 0}]
    missing = await controller.http.get("/v1/brokers/9/can-stop")
    assert missing.status_code == 404


async def test_leaders_stay_away_as_long_as_a_drain_of_leaders_lasts(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(leader_imbalance_check_interval_ms=100)
    await create(controller, replica_assignment=AR)
    dry = await drain(controller, 1, leaders_only=True, dry_run=True, expected=200)
    assert (dry["details"]["leaders"], dry["details"]["leaders_that_stay"]) == (2, 0)
    assert led(rig, by=1) == 2
    task = await drain(controller, 1, leaders_only=True)
    await until(lambda: led(rig, by=1) == 0, "1 leads nothing")
    again = await drain(controller, 1, expected=409)
    assert task["id"] in again["message"]
    await controller.http.post("/v1/elections", json={"type": "preferred"})
    await create(controller, "new", replica_assignment={"0": [1, 2, 3]})
    await until(lambda: rig.brokers[2].roles["new", 0].leader == 2, "it leads no new one either")
    await controller.retire()
    controller.resume()
    await rig.settled(controller)
    await controller.http.post("/v1/elections", json={"type": "preferred"})
    assert led(rig, by=1) == 0
    await controller.http.delete(f"/v1/tasks/{task['id']}")
    await until(lambda: led(rig, by=1) == 3, "the balance gives all of it back")
    assert (await get(controller, f"/v1/tasks/{task['id']}"))["state"] == "cancelled"


async def test_where_nobody_else_can_lead_a_drained_broker_goes_on(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2]})
    await create(controller, "alone", replica_assignment={"0": [1]})
    await drain(controller, 1, leaders_only=True)
    await until(lambda: led(rig, by=2) == 1, "2 leads what it can")
    await rig.brokers[2].leave()
    await until(lambda: rig.brokers[1].roles["orders", 0].leader == 1, "1 leads again, alone")
    assert (await read_state(zk_session, "alone", 0)).leader == 1
    rig.brokers[2].roles.clear()
    await rig.brokers[2].register()
    await rig.settled(controller)
    state = await read_state(zk_session, "orders", 0)
    grown = znodes.PartitionState(1, state.leader_epoch, (1, 2), state.controller_epoch)
    await zk_session.set(znodes.state_path("orders", 0), znodes.encode_state(grown), ANY_VERSION)
    await beat(controller, rig.brokers[1], isr_changes=[("orders", 0)])
    await until(lambda: rig.brokers[2].roles["orders", 0].leader == 2, "until 2 is in sync")


async def test_a_drain_empties_a_broker(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=4)
    await create(controller, replica_assignment=AR)
    dry = await drain(controller, 1, dry_run=True, expected=200)
    assert dry["partitions"]["total"] >= 6
    task = await drain(controller, 1, throttle_bytes_per_s=1_000_000)
    async with Followers(rig, zk_session):
        await over(controller, task["id"])
    found = await get(controller, f"/v1/tasks/{task['id']}")
    assert (found["state"], found["partitions"]["failed"]) == ("done", 0)
    assert controller.service.image().hosted_by(1) == {}
    await until(lambda: rig.brokers[1].roles == {}, "it has deleted all of it")
    assert all(stop.delete for stop in rig.brokers[1].stops)
    kinds = [entry.kind for entry in await audit(zk_session)]
    assert kinds.index("drain") < kinds.index("task_launched") < kinds.index("task_over")


async def test_defect_17_an_impossible_drain_is_refused_and_changes_nothing(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment=AR)
    await drain(controller, 9, expected=404)
    dry = await drain(controller, 1, dry_run=True, expected=400)
    refused = await drain(controller, 1, expected=400)
    assert (refused["error_code"], refused["message"]) == (40002, dry["message"])
    assert await zk_session.get_children(znodes.REASSIGN_PARTITIONS) == []
    await rig.settled(controller)
    assert led(rig, by=1) == 2, "its leaders stay"
    assert controller.service.image().draining == frozenset()
    await rig.add_brokers(4)
    await rig.settled(controller)
    await drain(controller, 1)
    queue = reassignment_queue_of(controller)
    await until(lambda: len(queue) > 0, "the first is planned")
    second = await drain(controller, 2, expected=400)
    assert "cannot be moved" in second["message"], "what is being emptied takes nothing"
    await drain(controller, 2, leaders_only=True)


async def test_defect_17_a_drain_that_has_become_impossible_says_what_it_waits_for(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment=AR)
    waiting = b'{"kind": "drain", "state": "preparing", "details": {"broker": 1}, "cause": "x"}'
    path = await zk_session.create(TASK_PREFIX, waiting, sequence=True)
    task = f"/v1/tasks/{path.rpartition('/')[2]}"

    async def waits() -> bool:
        answer = await controller.http.get(task)
        said = answer.json().get("waits_for") if answer.status_code == 200 else None
        return "cannot be moved" in (said or "")

    await wait_until(waits, "it says what it waits for", 20)
    assert (await get(controller, task))["state"] == "preparing"
    await rig.add_brokers(4)
    async with Followers(rig, zk_session):
        await over(controller, task.rpartition("/")[2])
    found = await get(controller, task)
    assert (found["waits_for"], "waits_for" in found["details"]) == (None, False)
    assert controller.service.image().hosted_by(1) == {}


async def test_defect_17_a_drain_whose_receiver_dies_says_what_it_waits_for(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=4)
    await create(controller, replica_assignment={"0": [1, 2, 3]})
    task = await drain(controller, 1)
    path = f"/v1/tasks/{task['id']}"
    queue = reassignment_queue_of(controller)
    await until(lambda: any(entry.is_running for entry in queue), "4 is to take over")
    assert "brokers [4] have caught up" in (await get(controller, path))["waits_for"]
    await rig.brokers[4].leave()

    async def waits() -> bool:
        said = (await get(controller, path))["waits_for"]
        return bool(said == "1 partition(s) (orders-0) for brokers [4], which are down")

    await wait_until(waits, "it says that 4 is down", 20)


async def test_a_drain_that_no_node_can_hold_is_split(rig: Rig) -> None:
    controller = await rig.up(brokers=2)
    name = "t" * 240
    await create(controller, name, replica_assignment={str(p): [1] for p in range(4000)})
    task = await drain(controller, 1)
    elected = controller.leadership.active_controller
    assert elected is not None
    found = elected.tasks.store.find(task["id"])
    await until(lambda: found.node.state is TaskState.RUNNING, "as much as fits is moved")
    assert found.node.total == 2000
    assert found.node.details["more"], "another task takes the rest"


async def test_what_one_task_of_a_drain_leaves_is_taken_by_the_next(
    rig: Rig, zk_session: ZkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and by itself: the reconciliation comes an hour later."""
    monkeypatch.setattr(drain_module, "MAX_PARTITIONS", 4)
    monkeypatch.setattr(drain_module, "PAUSE_S", 0.001)
    controller = await rig.up(brokers=4, reconcile_interval_ms=3_600_000)
    await create(controller, replica_assignment={str(p): [1, 2] for p in range(10)})
    first = await drain(controller, 1, throttle_bytes_per_s=5_000_000)
    image = controller.service.image()
    async with Followers(rig, zk_session):
        with Client([controller.listener.url]) as client:
            last = await asyncio.to_thread(follow, client, first["id"], as_json=False)
    assert _is_emptied(image, 1), "who watches the first one sees the end of all"
    tasks = (await get(controller, "/v1/tasks"))["tasks"]
    assert len(tasks) >= 3
    assert tasks[-1]["id"] == last["id"]
    assert {task["state"] for task in tasks} == {"done"}
    assert {task["throttle_bytes_per_s"] for task in tasks} == {5_000_000}
    assert [task["details"].get("continued") for task in tasks] == [
        *(task["id"] for task in tasks[1:]),
        None,
    ]


@pytest.mark.parametrize("after_sending", [False, True])
async def test_a_drain_survives_its_controller(
    rig: Rig, zk_session: ZkSession, after_sending: bool
) -> None:
    """The controller ends around each of the first writes of a drain, and another goes on."""
    controller = await rig.up(brokers=4, store_type=MortalStore)
    await create(controller, replica_assignment=AR)
    drained, spare = 1, 4
    for cut in range(1, 6):
        store = controller.stores[-1]
        assert isinstance(store, MortalStore)
        store.dies_after_sending, store.writes_left = after_sending, cut
        async with Followers(rig, zk_session):
            await controller.http.post(f"/v1/brokers/{drained}/drain", json={})
            await until(partial(_has_died, store), f"it ends at write {cut}")
            await controller.retire()
            controller.resume()
            await until(lambda: controller.is_active, "the next term has begun")
            image = controller.service.image()
            if not image.draining and image.hosted_by(drained):  # it ended before it was accepted
                await drain(controller, drained)
            await until(partial(_is_emptied, image, drained), f"{drained} is empty after cut {cut}")
        await rig.settled(controller)
        drained, spare = spare, drained


def _has_died(store: MortalStore) -> bool:
    return store.writes_left <= 0


def _is_emptied(image: ClusterImage, broker: int) -> bool:
    return not image.draining and not image.hosted_by(broker)
