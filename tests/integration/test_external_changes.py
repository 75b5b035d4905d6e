"""What operators change in ZooKeeper is in the audit, by the actor `external`, and in the past."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from leadline_common import znodes
from leadline_common.audit_outbox import audit_op
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.adapters.outbox import ZkOutbox
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.state import AuditedTransactions
from tests.integration.test_reassignment_agent import UncertainStore
from tests.support.checks.audit_records import broken_chains
from tests.support.reassigning import audit_records, get, read_topic
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController, read_state
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.slow

AR = {"0": [1, 2], "1": [2, 1]}
OFTEN = {"reconcile_interval_ms": 100}


async def external(session: ZkSession) -> list[znodes.AuditEntry]:
    """Return the entries about changes of others."""
    records = await audit_records(session)
    return [record.entry for record in records if record.entry.actor == "external"]


async def becomes_known(session: ZkSession, kind: str, **resource: Any) -> znodes.AuditEntry:
    """Wait until a change is in the audit, and return its entry."""

    async def found() -> znodes.AuditEntry | None:
        for entry in await external(session):
            if entry.kind == kind and resource.items() <= entry.resource.items():
                return entry
        return None

    return await wait_until(found, f"{kind} {resource} is in the audit", 20)


async def delete_topic_nodes(session: ZkSession, topic: str) -> None:
    """Delete a topic's node with all below it, as `deleteall` does."""
    root = znodes.partitions_path(topic)
    names = await session.get_children(root)
    states = [DeleteOp(znodes.state_path(topic, int(name)), ANY_VERSION) for name in names]
    parents = [DeleteOp(f"{root}/{name}", ANY_VERSION) for name in names]
    topic_nodes = [DeleteOp(root, ANY_VERSION), DeleteOp(znodes.topic_path(topic), ANY_VERSION)]
    await session.multi([*states, *parents, *topic_nodes])


async def is_the_past(controller: RunningController) -> None:
    """Wait until the past, as of now, is what the controller serves."""

    async def same() -> bool:
        live = await get(controller, "/v1/metadata")
        past = await get(controller, f"/v1/cluster?at={time.time_ns() // 1_000_000 + 1000}")
        assert past["complete"]
        return bool(past["topics"] == live["topics"])

    await wait_until(same, "the past is the present", 20)


async def test_defect_13_a_topic_node_deleted_by_hand_is_gone_from_the_past_too(
    rig: Rig, zk_session: ZkSession
) -> None:
    """R12: the topic is forgotten, and nobody is told to delete a replica."""
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment=AR)
    await create(controller, "other", replica_assignment=AR)
    topic_id = controller.service.topic("orders").topic_id
    await delete_topic_nodes(zk_session, "orders")
    entry = await becomes_known(zk_session, "topic_deleted", topic="orders", topic_id=topic_id)
    assert "stray.grace.ms" in entry.reason
    await is_the_past(controller)
    past = await get(controller, f"/v1/cluster?at={entry.time}")
    assert (past["topics"].keys(), past["complete"], past["reason"]) == ({"other"}, True, None)
    await rig.settled(controller)
    assert not any(broker.stops for broker in rig.brokers.values())
    assert not any("orders" in broker.metadata for broker in rig.brokers.values())


async def test_defect_13_a_topic_written_by_hand_is_in_the_past(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2, **OFTEN)
    value = znodes.encode_topic(TopicAssignment("", {0: (1, 2)}))
    await zk_session.create(znodes.topic_path("bare"), b'{"0": [2, 1]}')
    await zk_session.create(znodes.topic_path("orders"), value)
    for topic, replicas in (("orders", [1, 2]), ("bare", [2, 1])):
        entry = await becomes_known(zk_session, "topic_created", topic=topic)
        assert entry.after == {"assignment": {"0": replicas}, "configs": {}}
    await is_the_past(controller)
    node = await read_topic(zk_session, "orders")
    changed = msgspec.structs.replace(node, partitions={0: (1,), 1: (2,)})
    await zk_session.set(znodes.topic_path("orders"), znodes.encode_topic(changed), ANY_VERSION)
    entry = await becomes_known(zk_session, "topic_changed", topic="orders")
    assert entry.before == {"assignment": {"0": [1, 2], "1": None}}
    assert entry.after == {"assignment": {"0": [1], "1": [2]}}
    await is_the_past(controller)


async def test_defect_13_configs_written_by_hand_are_in_the_audit(
    rig: Rig, zk_session: ZkSession
) -> None:
    await create(await rig.up(brokers=1, **OFTEN), replica_assignment={"0": [1]})
    path = znodes.topic_config_path("orders")
    await zk_session.create(path, znodes.encode_configs({"retention.ms": "5000"}))
    entry = await becomes_known(zk_session, "configs_changed", topic="orders")
    assert (entry.before, entry.after) == ({}, {"retention.ms": "5000"})
    await zk_session.delete(path, ANY_VERSION)
    await until_count(zk_session, "configs_changed", 2)
    cluster = znodes.encode_configs({"min.insync.replicas": "1"})
    await zk_session.set(znodes.CONFIG_CLUSTER, cluster, ANY_VERSION)
    entry = await becomes_known(zk_session, "configs_changed", config="cluster")
    assert (entry.before, entry.after) == ({}, {"min.insync.replicas": "1"})
    broker = znodes.encode_configs({"log.flush.scheduler.interval.ms": "1"})
    await zk_session.create(znodes.broker_config_path(1), broker)
    await zk_session.set(znodes.CONFIG_CLUSTER, b"", ANY_VERSION)
    await until_count(zk_session, "configs_changed", 4)


async def until_count(session: ZkSession, kind: str, count: int) -> None:
    async def enough() -> bool:
        return sum(entry.kind == kind for entry in await external(session)) >= count

    await wait_until(enough, f"{count} entries {kind}", 20)


async def test_defect_13_a_state_written_by_hand_is_in_the_history_of_its_partition(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2, **OFTEN)
    await create(controller, replica_assignment=AR)
    for number, isr, epoch in ((0, (1,), 0), (1, (2, 1), 7)):  # the ISR alone, and the epoch
        state = await read_state(zk_session, "orders", number)
        edited = msgspec.structs.replace(state, isr=isr, leader_epoch=epoch)
        path = znodes.state_path("orders", number)
        await zk_session.set(path, znodes.encode_state(edited), ANY_VERSION)
    await until(
        lambda: rig.brokers[1].roles["orders", 1].leader_epoch == 7, "the edited epoch is known"
    )
    for number in (0, 1):
        path = f"/v1/topics/orders/partitions/{number}/history"
        found = await wait_until(partial(external_change, controller, path), "it is recorded")
        assert found["state_version"] == 1
    await is_the_past(controller)
    assert not list(broken_chains(await audit_records(zk_session)))


async def external_change(controller: RunningController, path: str) -> dict[str, Any] | None:
    changes = (await get(controller, path))["changes"]
    return next((change for change in changes if change["actor"] == "external"), None)


async def test_defect_13_a_tombstone_written_by_hand_is_in_the_audit(
    rig: Rig, zk_session: ZkSession
) -> None:
    """From the order on the topic is hidden, so the past must not show it any more."""
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment=AR)
    rig.brokers[1].deaf = True
    await zk_session.create(znodes.delete_topic_path("orders"))
    await becomes_known(zk_session, "topic_deletion_ordered", topic="orders")
    await is_the_past(controller)
    rig.brokers[1].deaf = False
    image = controller.service.image()
    await until(lambda: "orders" not in image.topics, "it is deleted")
    assert [entry.kind for entry in await external(zk_session)] == ["topic_deletion_ordered"]


def is_later(image: ClusterImage, zxid: int) -> bool:
    return image.zxid > zxid


async def test_defect_13_a_write_of_unknown_outcome_is_not_taken_for_somebody_elses(
    rig: Rig, zk_session: ZkSession
) -> None:
    """R7: the answer is lost, the write is there, and so is its audit entry."""
    controller = await rig.up(brokers=2, store_type=UncertainStore, **OFTEN)
    store = controller.stores[-1]
    assert isinstance(store, UncertainStore)
    store.sends_it = True
    image = controller.service.image()
    changes: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
        ("POST", "/v1/topics", {"name": "orders", "replica_assignment": AR}),
        ("PATCH", "/v1/topics/orders/configs", {"set": {"retention.ms": "5000"}}),
        ("PATCH", "/v1/configs", {"set": {"min.insync.replicas": "1"}}),
        ("POST", "/v1/topics/orders/partitions", {"partitions": 3}),
        ("DELETE", "/v1/topics/orders", {}),
    )
    for method, path, body in changes:
        before = image.zxid
        store.writes_left = 1
        await controller.http.request(method, path, json=body or None)
        await until(lambda: store.writes_left <= 0, f"{method} {path} is cut off")
        if path != "/v1/configs":
            await until(partial(is_later, image, before), "it is found")
    await until(lambda: "orders" not in image.topics, "it is deleted")
    assert not await external(zk_session)


@asynccontextmanager
async def unattended(rig: Rig, controller: RunningController) -> AsyncIterator[None]:
    """Have no controller active within the block, and another one elected after it."""
    await controller.retire()
    yield
    controller.resume()
    await rig.settled(controller)


async def test_defect_13_what_was_edited_while_no_controller_was_active_is_found(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2)
    for name in ("gone", "changed", "kept", "recreated"):
        await create(controller, name, replica_assignment=AR)
    before = await get(controller, f"/v1/cluster?at={time.time_ns() // 1_000_000 + 1000}")
    assert before["complete"]
    early = (await audit_records(zk_session))[-2].entry.time
    async with unattended(rig, controller):
        await delete_topic_nodes(zk_session, "gone")
        await delete_topic_nodes(zk_session, "recreated")
        for name in ("made", "recreated"):
            value = znodes.encode_topic(TopicAssignment("by-hand", {0: (2,)}))
            path = znodes.topic_path(name)
            await zk_session.multi([CreateOp(path, value), CreateOp(znodes.partitions_path(name))])
        node = await read_topic(zk_session, "changed")
        grown = msgspec.structs.replace(node, partitions={**node.partitions, 2: (1,)})
        await zk_session.set(znodes.topic_path("changed"), znodes.encode_topic(grown), ANY_VERSION)
        state = znodes.encode_state(PartitionState(1, 5, (1,), 1))
        await zk_session.set(znodes.state_path("kept", 0), state, ANY_VERSION)
    marker = await becomes_known(zk_session, "unaudited_changes_found")
    await until_count(zk_session, "states_changed", 1)
    await is_the_past(controller)
    kinds = [(e.kind, e.resource.get("topic")) for e in await external(zk_session)]
    assert sorted(kinds, key=str) == [
        ("states_changed", None),
        ("topic_changed", "changed"),
        ("topic_created", "made"),
        ("topic_created", "recreated"),
        ("topic_deleted", "gone"),
        ("topic_deleted", "recreated"),
        ("unaudited_changes_found", None),
    ]
    doubtful = await get(controller, f"/v1/cluster?at={marker.time - 1}")
    assert "gone" in doubtful["topics"]
    assert (doubtful["complete"], "no controller was active" in doubtful["reason"]) == (False, True)
    certain = await get(controller, f"/v1/cluster?at={early - 1}")
    assert certain["complete"], "before the last entry of the earlier controller all is known"


async def test_defect_13_a_change_of_terms_alone_is_no_change_of_others(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment=AR)
    async with unattended(rig, controller):
        await rig.brokers[1].leave()
    await create(controller, "later", replica_assignment={"0": [2]})
    await is_the_past(controller)
    assert not await external(zk_session)


async def test_defect_13_configs_left_behind_by_a_vanished_topic_are_not_inherited(
    rig: Rig, zk_session: ZkSession
) -> None:
    controller = await rig.up(brokers=2, **OFTEN)
    image = controller.service.image()
    for configs in ({}, {"retention.ms": "7000"}):
        await create(controller, replica_assignment=AR, configs={"retention.ms": "5000"})
        await delete_topic_nodes(zk_session, "orders")
        await until(lambda: "orders" not in image.topics, "it is forgotten")
        await create(controller, replica_assignment=AR, configs=configs)
        answer = await controller.http.delete("/v1/topics/orders?wait_ms=10000")
        assert answer.json()["complete"]
        assert await zk_session.exists(znodes.topic_config_path("orders")) is None


async def test_defect_13_the_outbox_knows_which_transactions_it_has(
    zk_session: ZkSession,
) -> None:
    for path in znodes.PERSISTENT_PATHS:
        await zk_session.ensure_path(path)
    outbox = ZkOutbox(zk_session)
    assert await outbox.audited([7]) == AuditedTransactions(frozenset(), 0)
    entry = znodes.AuditEntry(0, "", "", "made")
    zxids = [(await zk_session.multi([audit_op(entry)])).zxid for _ in range(80)]
    found = await outbox.audited([zxids[0], zxids[79], zxids[79] + 1])
    assert found == AuditedTransactions(frozenset({zxids[0], zxids[79]}), 0), "it has all of them"
    assert (await outbox.audited([zxids[79]])).since > zxids[0], "it reads no further"
    for number in range(10):
        await zk_session.delete(znodes.audit_path(number), ANY_VERSION)
    found = await outbox.audited([zxids[5]])
    assert (found.zxids, found.since) == (frozenset(), zxids[10]), "of those it knows nothing"


async def test_an_outbox_that_begins_again_uses_no_id_of_the_history(zk_session: ZkSession) -> None:
    for path in znodes.PERSISTENT_PATHS:
        await zk_session.ensure_path(path)
    outbox = ZkOutbox(zk_session)
    entry = znodes.AuditEntry(0, "", "", "made")
    await zk_session.multi([audit_op(entry)])
    assert not await outbox.skip_to(1), "the next id is 1 anyway"
    assert await outbox.skip_to(1_234)
    await zk_session.multi([audit_op(entry)])
    assert await outbox.extent() == (1_235, 2)
    assert [record.id for record in await outbox.read(1_234, 5)] == [1_234]
