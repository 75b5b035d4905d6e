"""Garbage in any znode is reported and passed over: no term ends, and the next one begins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest
import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl

from leadline_common import znodes
from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_controller.runtime.engine.events import Reconcile
from tests.support.garbage import GARBAGE, write
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController
from tests.support.services.zookeeper import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]
DIGITS = "9" * 400

NODES = (
    f"{znodes.BROKER_IDS}/77",
    f"{znodes.BROKER_IDS}/x",
    f"{znodes.BROKER_IDS}/{DIGITS}",
    f"{znodes.BROKER_EPOCHS}/77",
    f"{znodes.BROKER_EPOCHS}/abc",
    f"{znodes.BROKER_EPOCHS}/{DIGITS}",
    f"{znodes.TOPICS}/bad",
    f"{znodes.TOPICS}/..%2f",
    f"{znodes.TOPICS}/orders/partitions/x",
    f"{znodes.TOPICS}/orders/partitions/{DIGITS}",
    znodes.topic_path("clicks"),
    znodes.state_path("orders", 1),
    znodes.delete_topic_path("absent"),
    znodes.delete_topic_path("..%2f"),
    znodes.REASSIGN_PARTITIONS,
    f"{znodes.REASSIGN_PARTITIONS}/weird",
    f"{znodes.PARTITIONS_REASSIGNED}/orders",
    f"{znodes.PARTITIONS_REASSIGNED}/orders/0",
    f"{znodes.PARTITIONS_REASSIGNED}/orders/{DIGITS}",
    f"{znodes.PARTITIONS_REASSIGNED}/absent",
    f"{znodes.PARTITIONS_REASSIGNED}/absent/x",
    f"{znodes.PARTITIONS_ADD}/orders",
    f"{znodes.PARTITIONS_ADD}/orders/2",
    f"{znodes.PARTITIONS_ADD}/orders/{DIGITS}",
    f"{znodes.PARTITIONS_REMOVE}/orders",
    f"{znodes.PARTITIONS_REMOVE}/orders/7",
    f"{znodes.PARTITIONS_REMOVE}/orders/{DIGITS}",
    znodes.PREFERRED_ELECTION,
    f"{znodes.IDEMPOTENCY}/x",
    f"{znodes.AUDIT}/by-hand",
    f"{znodes.AUDIT_READERS}/x",
    f"{znodes.FAILED_BROKERS}/77",
    f"{znodes.FAILED_BROKERS}/{DIGITS}",
    f"{znodes.DEAD_BROKERS}/77",
    f"{znodes.DEAD_BROKERS}/x",
    znodes.CONFIG_CLUSTER,
    f"{znodes.CONFIG_BROKERS}/1",
    f"{znodes.CONFIG_BROKERS}/{DIGITS}",
    f"{znodes.CONFIG_TOPICS}/orders",
    f"{znodes.CONFIG_TOPICS}/absent",
)
"""A node of every kind that can be passed over; parents come first."""


@pytest.fixture
def quiet() -> Iterator[None]:
    """Capture the log: structlog's default rendering of a traceback blocks the loop for seconds."""
    with structlog.testing.capture_logs():
        yield
    UNREADABLE.retain("", [])


async def handles_requests(controller: RunningController, topic: str) -> None:
    """Check that topics are created, and everything is compared with ZooKeeper, without a fault."""
    await create(controller, topic, partitions=1, replication_factor=1)
    elected = controller.leadership.active_controller
    assert elected is not None
    elected.queue.trigger(Reconcile)
    await create(controller, f"{topic}-2", partitions=1, replication_factor=1)
    metrics = elected.context.metrics.render().decode().splitlines()
    assert [line for line in metrics if line.startswith("leadline_controller_event_faults")] == []


async def with_topics(rig: Rig) -> RunningController:
    """Start a controller, and create two topics."""
    controller = await rig.up(1, reconcile_interval_ms=60_000)
    await create(controller, "orders", partitions=2, replication_factor=1)
    await create(controller, "clicks", partitions=1, replication_factor=1)
    await rig.settled(controller)
    return controller


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_in_every_node_ends_no_term_and_hinders_none(
    rig: Rig, zk_session: ZkSession, kind: str
) -> None:
    controller = await with_topics(rig)
    term = controller.leadership.active_controller
    for path in NODES:
        await write(zk_session, path, GARBAGE[kind])
    await zk_session.create(znodes.AUDIT_ENTRY_PREFIX, GARBAGE[kind], sequence=True)
    await handles_requests(controller, "during")
    assert controller.leadership.active_controller is term
    summary = (await controller.http.get("/readyz")).text
    assert "nodes in ZooKeeper cannot be read" in summary
    for path in NODES:
        if await zk_session.exists(path) is None:  # what was an order has been refused
            await write(zk_session, path, GARBAGE[kind])
    await controller.retire()
    controller.resume()
    await until(lambda: controller.is_active, "the next term begins")
    await handles_requests(controller, "after")
    assert controller.epoch == 2
    await until(lambda: controller.replicator.stored > 10, "the history goes on behind the garbage")
    found = await controller.http.get("/v1/audit", params={"page_size": "5"})
    assert found.status_code == 200, found.text


def forbid(hosts: str, paths: Iterable[str]) -> None:
    """Let nobody but a stranger read or write nodes, as kazoo's CREATOR_ALL_ACL does."""
    client = KazooClient(hosts)
    client.start()
    try:
        for path in paths:
            with suppress(NoNodeError):  # what was an order has been refused
                client.set_acls(path, [make_acl("digest", "stranger:digest", all=True)])
    finally:
        client.stop()
        client.close()


async def test_nodes_that_nobody_else_may_read_end_no_term_and_hinder_none(
    rig: Rig, zk_session: ZkSession, zk_chroot: str
) -> None:
    controller = await with_topics(rig)
    term = controller.leadership.active_controller
    for path in NODES:
        await write(zk_session, path, b"{}")
    await asyncio.to_thread(forbid, zk_chroot, NODES)
    await handles_requests(controller, "during")
    assert controller.leadership.active_controller is term
    summary = (await controller.http.get("/readyz")).text
    assert "the ACL of this node does not let this session read it" in summary
    await controller.retire()
    controller.resume()
    await until(lambda: controller.is_active, "the next term begins")
    await handles_requests(controller, "after")


@pytest.mark.parametrize("kind", GARBAGE)
async def test_a_damaged_epoch_is_replaced_by_a_higher_one(
    rig: Rig, zk_session: ZkSession, kind: str
) -> None:
    controller = await rig.up(1)
    await create(controller, "orders")
    before = controller.epoch
    await controller.retire()
    await write(zk_session, znodes.CONTROLLER_EPOCH, GARBAGE[kind])
    controller.resume()
    await until(lambda: controller.is_active, "it is elected")
    assert controller.epoch > before
    await create(controller, "clicks")


@pytest.mark.parametrize("epoch", [b"-5", b"0", str(2**62).encode(), b"1_0"])
async def test_an_epoch_never_goes_back(rig: Rig, zk_session: ZkSession, epoch: bytes) -> None:
    controller = await rig.up(1)
    before = controller.epoch
    await controller.retire()
    await write(zk_session, znodes.CONTROLLER_EPOCH, epoch)
    controller.resume()
    await until(lambda: controller.is_active, "it is elected")
    assert before < controller.epoch < 100
    await create(controller, "clicks")


@pytest.mark.parametrize("kind", ["empty", "deep", "no JSON", "5,000 digits"])
async def test_a_leader_node_that_somebody_wrote_is_reported_and_may_be_removed(
    rig: Rig, zk_session: ZkSession, kind: str
) -> None:
    controller = await rig.up(1)
    await controller.retire()
    await write(zk_session, znodes.CONTROLLER, GARBAGE[kind])
    controller.resume()
    await until(lambda: znodes.CONTROLLER in UNREADABLE.summary(), "it is reported")
    assert not controller.is_active
    await zk_session.delete(znodes.CONTROLLER, ANY_VERSION)
    await until(lambda: controller.is_active, "it is elected")
    await create(controller, "clicks")


async def test_a_damaged_cluster_id_is_waited_for(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up(1)
    known, _ = await zk_session.get(znodes.CLUSTER_ID)
    await controller.retire()
    await write(zk_session, znodes.CLUSTER_ID, b"\xff\xfe")
    sessions = len(controller.stores)
    controller.resume()
    await until(lambda: len(controller.stores) > sessions + 1, "it tries again")
    assert not controller.is_active
    await write(zk_session, znodes.CLUSTER_ID, known)
    await until(lambda: controller.is_active, "it is elected")
