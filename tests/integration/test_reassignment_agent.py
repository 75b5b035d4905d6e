"""Reassignments on a real ZooKeeper with brokers that record: the nodes and commands of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leadline_common import znodes
from leadline_common.tasks import Intent, encode_intent, intent_path, intents_path
from leadline_common.zk.session import ZkSession
from tests.support.controller_rig import Rig, create
from tests.support.controllers import RunningController, read_state
from tests.support.reassigning import catch_up, post_reassignment, read_topic
from tests.support.zookeeper import until

LIMITED = {"reassignment_max_concurrent_replica_movements": 2}


def assignment_of(controller: RunningController, topic: str = "orders", number: int = 0) -> Any:
    """Return replicas, adding and removing of a partition as the controller knows them."""
    node = controller.service.image().topics[topic].assignment
    return (
        node.partitions[number],
        node.adding.get(number, ()),
        node.removing.get(number, ()),
    )


def becomes(controller: RunningController, *expected: Sequence[int]) -> Callable[[], bool]:
    return lambda: assignment_of(controller) == tuple(tuple(part) for part in expected)


async def stored(session: ZkSession) -> tuple[tuple[int, ...], ...]:
    node = await read_topic(session, "orders")
    return node.partitions[0], node.adding.get(0, ()), node.removing.get(0, ())


async def test_the_printed_example_step_by_step(rig: Rig, zk_session: ZkSession) -> None:
    """Seed 5: (0,1,2,3,4) to (5,6,7,8,9), two at a time; each node exactly as printed."""
    controller = await rig.up(brokers=0, **LIMITED)
    await rig.add_brokers(*range(10))
    await until(lambda: len(rig.live) == 10 and controller.service.image().live == rig.live, "live")
    await create(controller, replica_assignment={"0": [0, 1, 2, 3, 4]})
    task = await post_reassignment(controller, {("orders", 0): (5, 6, 7, 8, 9)})
    assert task["state"] in ("accepted", "running")
    steps = [
        ([5, 0, 1, 2, 3, 4], [5], [], [5, 0, 1, 2, 3, 4]),
        ([5, 6, 0, 1, 2, 3, 4], [6], [0, 1], [5, 6, 2, 3, 4]),
        ([5, 6, 7, 8, 2, 3, 4], [7, 8], [2, 3], [5, 6, 7, 8, 4]),
        ([5, 6, 7, 8, 9, 4], [9], [4], [5, 6, 7, 8, 9]),
    ]
    for replicas, adding, removing, result in steps:
        await until(becomes(controller, replicas, adding, removing), f"expanded to {replicas}")
        assert await stored(zk_session) == (tuple(replicas), tuple(adding), tuple(removing))
        listed = (await controller.http.get("/v1/reassignments")).json()
        assert listed["current_batch"][0]["target"] == result
        assert listed["reassignments"][0]["waiting_for"] == adding
        await until(
            lambda added=adding: all(("orders", 0) in rig.brokers[b].roles for b in added),
            "the added replicas have their roles",
        )
        assert rig.brokers[adding[0]].roles["orders", 0].adding == tuple(adding)
        assert await catch_up(rig, controller, zk_session, [("orders", 0)])
        reached = [tuple(result)]
        await until(lambda r=reached: _passed(controller, r[0]), f"shrunk to {result}")
        state = await read_state(zk_session, "orders", 0)
        assert state.leader == 5
    await until(lambda: not len(_agenda(controller)), "it is finished")
    assert await stored(zk_session) == ((5, 6, 7, 8, 9), (), ())
    assert await zk_session.exists(intents_path("orders")) is None
    await rig.settled(controller)
    stopped = {b for b in range(10) if rig.brokers[b].stops}
    assert stopped == {0, 1, 2, 3, 4}
    assert all(command.delete for b in stopped for command in rig.brokers[b].stops)
    over = (await controller.http.get(f"/v1/tasks/{task['id']}")).json()
    assert (over["state"], over["partitions"]["done"]) == ("done", 1)


def _agenda(controller: RunningController) -> Any:
    reign = controller.leadership.reign
    assert reign is not None
    return reign.reassignments.agenda


def _passed(controller: RunningController, result: tuple[int, ...]) -> bool:
    """Tell whether a step has ended with `result`: the next one may have begun."""
    replicas, adding, _ = assignment_of(controller)
    return tuple(b for b in replicas if b not in adding) in (result, (5, 6, 7, 8, 9))
