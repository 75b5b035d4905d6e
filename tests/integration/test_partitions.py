"""Partitions that are added to topics, and removed: by request, by hand, and over crashes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from leadline_common import znodes
from leadline_common.partition_intents import intent_path, intents_path
from leadline_common.zk.session import ZkSession
from leadline_controller.domain.history import AuditRecord
from tests.integration.test_controller_spine import audit
from tests.support.checks.audit_records import broken_chains
from tests.support.reassigning import over, post_reassignment
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import MortalStore, RunningController, read_state
from tests.support.services.zookeeper import until


async def add(controller: RunningController, total: int, **body: Any) -> httpx.Response:
    path = "/v1/topics/orders/partitions"
    return await controller.http.post(path, json={"partitions": total, **body})


async def remove(
    controller: RunningController, *numbers: int, wait_ms: int = 10_000, **body: Any
) -> httpx.Response:
    return await controller.http.request(
        "DELETE",
        "/v1/topics/orders/partitions",
        params={"wait_ms": wait_ms},
        json={"partitions": numbers, **body},
    )


async def topic_node(session: ZkSession) -> znodes.TopicAssignment:
    data, _ = await session.get(znodes.topic_path("orders"))
    return znodes.decode_topic(data)


async def exists(session: ZkSession, path: str) -> bool:
    return await session.exists(path) is not None


async def test_added_partitions_continue_the_round(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    made = await create(controller, partitions=2, replication_factor=2)
    dry = await add(controller, 4, dry_run=True)
    assert dry.status_code == 200
    answer = await add(controller, 4)
    assert (answer.status_code, answer.json()["added"]) == (201, dry.json()["added"])
    whole = made["replica_assignment"] | answer.json()["added"]
    assert whole == {"0": [1, 2], "1": [2, 3], "2": [3, 1], "3": [1, 3]}
    for broker in rig.brokers.values():
        assert len(broker.metadata["orders"].partitions) == 4
    assert ("orders", 3) in rig.brokers[3].roles
    assert (await read_state(zk_session, "orders", 3)).leader_epoch == 0
    again = await add(controller, 4)
    assert (again.status_code, again.json()["outcome"]) == (400, "refused")


async def test_added_partitions_may_be_placed_by_hand(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1, 2]})
    for wrong in ({"2": [1, 2]}, {"1": [1]}, {"1": [1, 1]}, {"1": [1, 9]}):
        refused = await add(controller, 2, replica_assignment=wrong)
        assert refused.status_code == 400, refused.text
    assert (await topic_node(zk_session)).partitions == {0: (1, 2)}
    answer = await add(controller, 2, replica_assignment={"1": [3, 1]})
    assert answer.json()["added"] == {"1": [3, 1]}
    assert (await read_state(zk_session, "orders", 1)).leader == 3


async def test_removed_partitions_go_from_brokers_clients_and_zookeeper(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up()
    await create(controller, partitions=4, replication_factor=3)
    for wrong in ([1], [0, 1, 2, 3], [9], []):
        refused = await remove(controller, *wrong)
        assert refused.status_code // 100 == 4, refused.text
    assert (await remove(controller, 3, 2, dry_run=True)).json()["partitions"] == [3, 2]
    assert len((await topic_node(zk_session)).partitions) == 4
    answer = await remove(controller, 2, 3)
    assert (answer.status_code, answer.json()["complete"]) == (200, True)
    node = await topic_node(zk_session)
    assert sorted(node.partitions) == [0, 1]
    assert node.first_epochs == {2: 1, 3: 1}
    assert not await exists(zk_session, znodes.partition_path("orders", 3))
    assert not await exists(zk_session, intent_path(znodes.PARTITIONS_REMOVE, "orders", 3))
    await rig.settled(controller)
    for broker in rig.brokers.values():
        assert sorted(broker.roles) == [("orders", 0), ("orders", 1)]
        assert all(stop.delete for stop in broker.stops)
        assert [row.partition for row in broker.metadata["orders"].partitions] == [0, 1]


async def test_a_partition_that_is_added_again_begins_with_later_epochs(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up()
    await create(controller, partitions=2, replication_factor=3)
    await rig.brokers[3].leave()
    await until(lambda: rig.brokers[1].roles["orders", 1].leader_epoch == 1, "3 is out")
    assert (await remove(controller, 1)).json()["complete"]
    assert (await add(controller, 2)).status_code == 400, "too few brokers are live"
    answer = await add(controller, 2, replica_assignment={"1": [3, 1, 2]})
    assert answer.status_code == 201, answer.text
    state = await read_state(zk_session, "orders", 1)
    assert (state.leader, state.leader_epoch) == (1, 2)
    row = rig.brokers[2].roles["orders", 1]
    assert (row.leader_epoch, row.first_epoch) == (2, 2)
    rig.brokers[3].roles.clear()
    await rig.brokers[3].register()
    await until(lambda: ("orders", 1) in rig.brokers[3].roles, "3 has its grant")
    assert rig.brokers[3].roles["orders", 1].first_epoch == 2
    assert not list(broken_chains(await records(zk_session)))


async def test_a_reassignment_does_not_outlive_its_partition(
    rig: Rig, zk_session: ZkSession
) -> None:
    """One that is added again under the number is another partition, and stays where it is."""
    controller = await rig.up()
    await create(controller, replica_assignment={"0": [1], "1": [1]})
    task = await post_reassignment(controller, {("orders", 1): (3,)})
    await until(lambda: ("orders", 1) in rig.brokers[3].roles, "3 is being added")
    assert (await remove(controller, 1)).json()["complete"]
    path = znodes.PARTITIONS_REASSIGNED
    assert await zk_session.get_children(path) == [], "it went in the same transaction"
    answer = await add(controller, 2, replica_assignment={"1": [2]})
    assert answer.status_code == 201, answer.text
    found = await over(controller, task["id"])
    assert (found["state"], found["partitions"]["failed"]) == ("done", 1)
    await rig.settled(controller)
    assert (await topic_node(zk_session)).partitions == {0: (1,), 1: (2,)}


async def records(session: ZkSession) -> list[Any]:
    return [AuditRecord(n, n, entry) for n, entry in enumerate(await audit(session))]


async def test_a_removal_waits_for_a_broker_that_is_slow_to_stop(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up()
    await create(controller, partitions=2, replication_factor=3)
    rig.brokers[2].deaf = True
    answer = await remove(controller, 1, wait_ms=0)
    assert (answer.status_code, answer.json()["complete"]) == (202, False)
    assert await exists(zk_session, znodes.state_path("orders", 1))
    for refused in (await remove(controller, 1), await add(controller, 3)):
        assert (refused.status_code, refused.json()["error_code"]) == (409, 40990)
    shown = (await controller.http.get("/v1/topics/orders")).json()
    assert [row["partition"] for row in shown["partitions"]] == [0]
    rig.brokers[2].deaf = False
    topic = controller.service.topic("orders")
    await until(lambda: not topic.pending_removal and 1 not in topic.partitions, "it is removed")


async def test_defect_14_orders_by_hand_are_carried_out_and_taken_away(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up()
    await create(controller, partitions=1, replication_factor=2)
    topic = controller.service.topic("orders")
    root = znodes.PARTITIONS_ADD
    await zk_session.create(intents_path(root, "orders"))
    await zk_session.create(intent_path(root, "orders", 1), b'{"replicas": [2, 3]}')
    await until(lambda: 1 in topic.partitions, "it is added")
    assert not await exists(zk_session, intents_path(root, "orders")), "nothing is left of it"
    await zk_session.create(intents_path(root, "orders"))
    await zk_session.create(intent_path(root, "orders", 2), b"[3, 1]")
    await until(lambda: 2 in topic.partitions, "the bare list, too")
    assert topic.partitions[2].replicas == (3, 1)
    await rig.settled(controller)
    assert not await exists(zk_session, intents_path(root, "orders"))
    root = znodes.PARTITIONS_REMOVE
    await zk_session.create(intents_path(root, "orders"))
    await zk_session.create(intent_path(root, "orders", 2))
    await until(lambda: 2 not in topic.partitions, "it is removed")
    assert not await exists(zk_session, intents_path(root, "orders"))


@pytest.mark.parametrize(
    ("root", "topic", "number", "value"),
    [
        (znodes.PARTITIONS_ADD, "orders", 7, b"[1, 2]"),
        (znodes.PARTITIONS_ADD, "orders", 2, b"[1, 77]"),
        (znodes.PARTITIONS_ADD, "orders", 2, b"not JSON"),
        (znodes.PARTITIONS_ADD, "orders", 2, b'{"replicas": [1], "topic_id": "another"}'),
        (znodes.PARTITIONS_ADD, "unknown", 0, b"[1]"),
        (znodes.PARTITIONS_REMOVE, "orders", 0, b""),
        (znodes.PARTITIONS_REMOVE, "orders", 9, b""),
        (znodes.PARTITIONS_REMOVE, "orders", 1, b'{"topic_id": "another"}'),
        (znodes.PARTITIONS_REMOVE, "orders", 1, b"\xff"),
    ],
)
async def test_an_impossible_order_by_hand_is_refused_and_audited(
    rig: Rig, zk_session: ZkSession, root: str, topic: str, number: int, value: bytes
) -> None:
    """Whether it is found by a watch or by the next controller, nothing else waits for it."""
    controller = await rig.up(brokers=2)
    await create(controller, partitions=2, replication_factor=2)
    before = await topic_node(zk_session)
    await zk_session.create(intents_path(root, topic))
    await zk_session.create(intent_path(root, topic, number), value)

    async def refusals() -> list[znodes.AuditEntry]:
        return [e for e in await audit(zk_session) if e.kind == "partition_order_refused"]

    await wait_until(refusals, "the order is refused")
    (entry,) = await refusals()
    assert entry.outcome == "refused"
    assert entry.reason
    assert await topic_node(zk_session) == before
    assert not await exists(zk_session, intent_path(root, topic, number))


@pytest.mark.parametrize("after_sending", [False, True])
async def test_every_step_can_be_repeated_by_the_next_controller(
    rig: Rig, zk_session: ZkSession, after_sending: bool
) -> None:
    """The controller ends before, or after, each of its writes, and another one goes on."""
    first = await rig.up(store_type=MortalStore)
    await create(first, partitions=2, replication_factor=3)
    total = 2
    epochs: dict[int, int] = {}
    for cut in range(1, 6):
        for grow in (True, False):
            await _cut_short(rig, first, cut, grow, total, after_sending)
            node = await topic_node(zk_session)
            states = {p: await read_state(zk_session, "orders", p) for p in node.partitions}
            assert set(await zk_session.get_children(znodes.partitions_path("orders"))) == {
                str(p) for p in node.partitions
            }
            for number, state in states.items():
                assert state.leader_epoch >= epochs.get(number, 0)
            gone = epochs.keys() - states.keys()
            assert all(node.first_epochs[number] > epochs[number] for number in gone)
            epochs |= {number: state.leader_epoch for number, state in states.items()}
            for broker in rig.brokers.values():
                assert sorted(p for _, p in broker.roles) == sorted(node.partitions)
            total = len(node.partitions)
    assert not list(broken_chains(await records(zk_session)))


async def _cut_short(
    rig: Rig, controller: RunningController, cut: int, grow: bool, total: int, after: bool
) -> None:
    """Have a controller end around its `cut`-th write of a change, and another term finish it."""
    store = controller.stores[-1]
    assert isinstance(store, MortalStore)
    store.dies_after_sending, store.writes_left = after, cut
    try:
        if grow:
            await add(controller, total + 2)
        else:
            await remove(controller, *range(max(1, total - 2), total), wait_ms=1000)
    finally:
        store.writes_left = -1
    await controller.retire()
    controller.resume()
    await rig.settled(controller)
    image = controller.service.image()
    topic = image.topics["orders"]
    await until(
        lambda: not topic.pending_removal and all(p.state for p in topic.partitions.values()),
        "the change is finished",
    )
    await rig.settled(controller)
