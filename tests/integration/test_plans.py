"""Plans on a real ZooKeeper with brokers that record: made, gone stale, applied once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from leadline_common.zk.session import ZkSession
from leadline_controller.domain.planning import requests
from leadline_controller.runtime.engine.events import Reply
from leadline_controller.runtime.reassignment.plans import MAX_COMPUTING, KnownPlan
from tests.integration.test_controller_spine import audit
from tests.support.reassigning import (
    Followers,
    get,
    over,
    post_reassignment,
    read_topic,
    reassignment_queue_of,
)
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController
from tests.support.services.zookeeper import until

THREE = {str(p): [1 + p % 3, 1 + (p + 1) % 3] for p in range(12)}


async def make(controller: RunningController, kind: str, **body: Any) -> dict[str, Any]:
    answer = await controller.http.post("/v1/plans", json={"kind": kind, **body})
    assert answer.status_code == 201, answer.text
    plan: dict[str, Any] = answer.json()
    return plan


async def apply(controller: RunningController, plan: dict[str, Any], **how: Any) -> Any:
    return await controller.http.post(f"/v1/plans/{plan['id']}/apply", json=how)


async def refused(controller: RunningController, plan: dict[str, Any], says: str) -> None:
    """Expect a plan to be stale, and that nothing is begun."""
    answer = await apply(controller, plan)
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40982), answer.text
    assert answer.json()["outcome"] == "refused"
    assert says in answer.json()["message"]
    assert (await get(controller, f"/v1/plans/{plan['id']}"))["stale"]
    assert len(reassignment_queue_of(controller)) == 0


async def test_an_expansion_is_planned_applied_and_carried_out(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment=THREE)
    await rig.add_brokers(4)
    await rig.settled(controller)
    plan = await make(controller, "expand")
    assert plan["figures"] == {
        "partitions": len(plan["partitions"]),
        "moves": 6,
        "least_moves": 6,
        "leader_changes": plan["figures"]["leader_changes"],
        "replica_spread_before": 8,
        "replica_spread_after": 0,
        "leader_spread_before": 4,
        "leader_spread_after": 0,
    }
    assert await read_topic(zk_session, "orders") == (
        controller.service.image().topics["orders"].assignment
    ), "planning changes nothing"
    answer = await apply(controller, plan, throttle_bytes_per_s=1_000_000)
    assert answer.status_code == 202, answer.text
    task = answer.json()
    assert (task["kind"], task["throttle_bytes_per_s"]) == ("plan", 1_000_000)
    assert task["details"]["plan"] == plan["id"]
    async with Followers(rig, zk_session):
        assert (await over(controller, task["id"]))["state"] == "done"
    now = (await read_topic(zk_session, "orders")).partitions
    planned = {row["partition"]: tuple(row["replicas"]) for row in plan["partitions"]}
    assert {number: now[number] for number in planned} == planned
    counts = Counter(broker for replicas in now.values() for broker in replicas)
    assert set(counts.values()) == {6}
    kinds = [(entry.kind, entry.outcome) for entry in await audit(zk_session)]
    assert ("make_plan", "dry_run") in kinds
    await refused(controller, plan, "applied already")
    assert (await get(controller, f"/v1/plans/{plan['id']}"))["tasks"] == [task["id"]]


async def test_a_plan_goes_stale_with_brokers_and_replicas_not_with_leaders(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=4)
    await create(controller, replica_assignment=THREE)
    plan, other = await make(controller, "drain", brokers=[3]), await make(controller, "balance")
    await controller.http.post("/v1/elections", json={"type": "preferred", "partitions": None})
    assert not (await get(controller, f"/v1/plans/{plan['id']}"))["stale"]
    task = await post_reassignment(controller, {("orders", 0): (1, 4)})
    async with Followers(rig, zk_session):
        await over(controller, task["id"])
    await refused(controller, plan, "'orders'")
    await refused(controller, other, "'orders'")

    plan = await make(controller, "drain", brokers=[3])
    await create(controller, "more", partitions=1, replication_factor=1)
    await refused(controller, plan, "'more'")
    limited = await make(controller, "drain", brokers=[3], topics=["orders"])
    await controller.http.delete("/v1/topics/more")
    await rig.add_brokers(5)
    await rig.settled(controller)
    await refused(controller, limited, "brokers [5]")


async def test_a_plan_for_topics_that_are_gone_is_stale(rig: Rig) -> None:
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment={"0": [1, 2], "1": [1, 2]})
    plan = await make(controller, "balance", topics=["orders"])
    await controller.http.delete("/v1/topics/orders")
    await refused(controller, plan, "'orders'")


async def test_nobody_plans_for_replicas_that_are_moving(rig: Rig) -> None:
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment={"0": [1, 2]})
    await post_reassignment(controller, {("orders", 0): (1, 3)})
    answer = await controller.http.post("/v1/plans", json={"kind": "balance"})
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40980)


async def test_what_cannot_be_planned_is_refused(rig: Rig) -> None:
    controller = await rig.up(brokers=3)
    await create(controller, replica_assignment={"0": [1, 2, 3]})
    for body, code, says in (
        ({"kind": "drain"}, 40050, "list the brokers"),
        ({"kind": "drain", "brokers": [3]}, 40002, "cannot be moved"),
        ({"kind": "drain", "brokers": [9]}, 40002, "[9]"),
        ({"kind": "expand"}, 40002, "every live broker has replicas"),
        ({"kind": "expand", "brokers": [9]}, 40002, "[9]"),
        ({"kind": "balance", "exclude": [1, 2, 3]}, 40002, "no live broker may get replicas"),
        ({"kind": "balance", "topics": ["nope"]}, 40403, "nope"),
        ({"kind": "tidy"}, 40050, "kind"),
    ):
        answer = await controller.http.post("/v1/plans", json=body)
        assert (answer.json()["error_code"], answer.json()["outcome"]) == (code, "refused"), body
        assert says in answer.text
    nothing = await make(controller, "balance")
    assert nothing["partitions"] == []
    answer = await apply(controller, nothing)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    unknown = await controller.http.post("/v1/plans/none/apply", json={})
    assert unknown.status_code == 404


async def test_a_plan_too_large_for_one_node_becomes_several_tasks(
    rig: Rig, zk_session: ZkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_PART_BYTES", 250)
    controller = await rig.up(brokers=4)
    await create(controller, replica_assignment=THREE)
    plan = await make(controller, "drain", brokers=[3])
    first = (await apply(controller, plan)).json()
    tasks = (await get(controller, f"/v1/plans/{plan['id']}"))["tasks"]
    assert tasks[0] == first["id"]
    assert len(tasks) == first["details"]["parts"] > 1
    async with Followers(rig, zk_session):
        for task in tasks:
            assert (await over(controller, task))["state"] == "done"
    now = (await read_topic(zk_session, "orders")).partitions
    assert not any(3 in replicas for replicas in now.values())
    await until(lambda: len(reassignment_queue_of(controller)) == 0, "nothing is left")


async def test_more_plans_than_are_computed_at_a_time_are_refused(rig: Rig) -> None:
    controller = await rig.up(brokers=1)
    term = controller.leadership.active_controller
    assert term is not None
    loop = asyncio.get_running_loop()
    others: set[Reply[KnownPlan]] = {Reply(loop.create_future()) for _ in range(MAX_COMPUTING)}
    term.plans._computing |= others
    answer = await controller.http.post("/v1/plans", json={"kind": "balance"})
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50365), answer.text
    term.plans._computing -= others
    await make(controller, "balance")
