"""What brokers are told when one of them refuses, disagrees or is slow."""

from __future__ import annotations

import asyncio

import pytest

from leadline_client.errors import NoController, StorageFailed
from leadline_client.wire import NewTopic
from tests.integration.test_controller_spine import beat
from tests.support.controller_rig import Rig, create
from tests.support.zookeeper import until


async def test_a_role_that_is_refused_for_ever_keeps_nothing_else_waiting(rig: Rig) -> None:
    """One full disk: its broker still hears of every other topic, and still deletes."""
    controller = await rig.up(brokers=2)
    await create(controller, "old", partitions=1, replication_factor=2)
    broker = rig.brokers[1]
    broker.refuse_next = [StorageFailed.code] * 10_000
    creation = asyncio.create_task(
        controller.service.create_topic(NewTopic("full", 1, 2), dry_run=False)
    )
    await until(lambda: "full" in broker.metadata, "metadata goes on")
    answer = await controller.http.delete("/v1/topics/old?wait_ms=5000")
    assert answer.json()["complete"]
    broker.refuse_next.clear()
    await creation
    assert ("full", 0) in broker.roles


async def test_a_disagreement_that_grants_do_not_settle_costs_ever_fewer_of_them(rig: Rig) -> None:
    """A replica that cannot be opened, for instance: the broker says so with every heartbeat."""
    controller = await rig.up(brokers=1)
    await create(controller, partitions=1, replication_factor=1)
    broker = rig.brokers[1]

    def grants() -> int:
        return sum(command.is_init for command in broker.leader_and_isr)

    before = grants()
    for _ in range(100):
        await beat(controller, broker, replicas=9)
        await rig.settled(controller)
    assert 2 <= grants() - before <= 6
    for _ in range(2):
        await beat(controller, broker)
    broker.roles.clear()
    for _ in range(5):
        await beat(controller, broker)
    await until(lambda: len(broker.roles) == 1, "after an agreement it is helped soon again")


async def test_a_broker_that_obeys_a_later_controller_ends_a_term(rig: Rig) -> None:
    """R11: whoever waits in a long poll is told to look for the active controller."""
    controller = await rig.up(brokers=1)
    version = controller.service.image().version
    term = controller.epoch
    poll = asyncio.create_task(controller.service.metadata(version + 1_000, 30_000))
    await asyncio.sleep(0)  # it has begun, under this term
    await beat(controller, rig.brokers[1], controller_epoch=term + 1)
    with pytest.raises(NoController):
        await poll
    await until(lambda: controller.is_active and controller.epoch > term, "a new term")
