"""Operators write ZooKeeper by hand, and may write anything: no value stops the controller."""

from __future__ import annotations

import asyncio

import pytest

from leadline_common import znodes
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import TopicAssignment
from tests.integration.test_controller_spine import audit
from tests.integration.test_external_changes import delete_topic_nodes
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import read_state
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.slow

AR = {"0": [1, 2], "1": [1, 2], "2": [1, 2], "3": [1, 2]}


async def test_a_state_that_cannot_be_read_keeps_no_other_partition_waiting(
    rig: Rig, zk_session: ZkSession
) -> None:
    """Many partitions share a multi, which one of them would have refused for ever."""
    controller = await rig.up(brokers=2)
    await create(controller, replica_assignment=AR)
    await zk_session.set(znodes.state_path("orders", 0), b"not JSON", ANY_VERSION)
    await zk_session.delete(znodes.state_path("orders", 1), ANY_VERSION)
    await rig.brokers[1].leave()
    roles = rig.brokers[2].roles
    await until(lambda: roles["orders", 2].leader == roles["orders", 3].leader == 2, "2 leads")


async def test_first_leaders_are_given_beside_a_state_that_cannot_be_read(
    rig: Rig, zk_session: ZkSession
) -> None:
    await rig.add_brokers(1)
    assignment = znodes.encode_topic(TopicAssignment("id-1", {0: (1,), 1: (1,), 2: (1,)}))
    await zk_session.create(znodes.topic_path("gaps"), assignment)
    for partition in (0, 1):
        await zk_session.ensure_path(znodes.partition_path("gaps", partition))
        await zk_session.create(znodes.state_path("gaps", partition), b"{}")
    await rig.settled(await rig.controller())
    assert (await read_state(zk_session, "gaps", 2)).leader == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (znodes.topic_path("bad"), b"not JSON"),
        (znodes.topic_path("bad"), b'{"partitions": {"0": [[1]]}}'),
        (znodes.topic_path("bad"), b'{"partitions": {"0": []}, "unknown": 1}'),
        (znodes.topic_config_path("orders"), b'{"configs": {"min.insync.replicas": "few"}}'),
        (znodes.delete_topic_path("none"), b"\xff"),
        (znodes.state_path("orders", 0), b'{"leader": 1, "leader_epoch": null}'),
        (znodes.CONTROLLER_EPOCH, b"many"),
    ],
)
async def test_no_value_prevents_an_election(
    rig: Rig, zk_session: ZkSession, path: str, value: bytes
) -> None:
    first = await rig.up(brokers=2)
    await create(first, replica_assignment=AR)
    await first.retire()
    if await zk_session.exists(path):
        await zk_session.set(path, value, ANY_VERSION)
    else:
        await zk_session.create(path, value)
    second = await rig.controller()
    await rig.settled(second)
    assert second.epoch > first.epoch
    await rig.brokers[1].leave()
    roles = rig.brokers[2].roles
    await until(lambda: all(roles["orders", p].leader == 2 for p in (1, 2, 3)), "2 leads")


async def test_a_config_that_is_none_costs_no_other_one(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=1, reconcile_interval_ms=100)
    await create(controller, partitions=1, replication_factor=1)
    value = b'{"configs": {"min.insync.replicas": 1, "unclean.leader.election.enable": "?"}}'
    await zk_session.create(znodes.topic_config_path("orders"), value)
    topic = controller.service.topic("orders")
    await until(lambda: topic.configs == {"min.insync.replicas": "1"}, "it is obeyed")


async def test_a_deletion_that_cannot_be_finished_stops_nothing_else(
    rig: Rig, zk_session: ZkSession
) -> None:
    """Something that we do not know lies below the topic, so that ZooKeeper keeps its node."""
    for path in znodes.PERSISTENT_PATHS:
        await zk_session.ensure_path(path)
    await zk_session.ensure_path(f"{znodes.topic_path('a')}/unknown/child")
    for name in ("a", "b"):
        await zk_session.create(znodes.delete_topic_path(name))
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    assert await zk_session.get_children(znodes.DELETE_TOPICS) == ["a"]


async def test_whatever_is_deleted_has_its_audit_entry(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(brokers=1)
    await create(controller, partitions=2, replication_factor=1)
    await zk_session.create(znodes.delete_topic_path("orders"), b"another-id")
    async with asyncio.timeout(20):
        while await zk_session.exists(znodes.delete_topic_path("orders")):  # noqa: ASYNC110 - a node
            await asyncio.sleep(0.01)
    await controller.http.delete("/v1/topics/orders?wait_ms=5000")
    kinds = [entry.kind for entry in await audit(zk_session)]
    assert kinds[-4:] == [
        "tombstone_dropped",
        "topic_deletion_ordered",
        "topic_states_deleted",
        "topic_deleted",
    ]


async def test_a_topic_that_follows_one_whose_deletion_waits_is_not_deleted(
    rig: Rig, zk_session: ZkSession
) -> None:
    """The end of that deletion, which a broker had held up, was taken for one of the new topic."""
    controller = await rig.up(brokers=2, reconcile_interval_ms=100)
    await create(controller, replica_assignment={"0": [1, 2]})
    rig.brokers[2].deaf = True
    answer = await controller.http.delete("/v1/topics/orders")
    assert answer.status_code < 300, answer.text
    await delete_topic_nodes(zk_session, "orders")
    recreated = znodes.encode_topic(TopicAssignment("id-2", {0: (1, 2)}))
    await zk_session.create(znodes.topic_path("orders"), recreated)
    await until(lambda: rig.brokers[1].topic_ids.get("orders") == "id-2", "1 has the new topic")

    rig.brokers[2].deaf = False
    await until(lambda: rig.brokers[2].topic_ids.get("orders") == "id-2", "2 has the new topic")
    await rig.settled(controller)
    await create(controller, "later", replica_assignment={"0": [1, 2]})
    await rig.settled(controller)

    assert await zk_session.exists(znodes.topic_path("orders"))
    assert (await read_state(zk_session, "orders", 0)).leader == 1
    stops = [stop for broker in rig.brokers.values() for stop in broker.stops]
    assert "id-2" not in {topic.topic_id for stop in stops for topic in stop.topics}
