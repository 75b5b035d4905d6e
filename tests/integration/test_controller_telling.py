"""What brokers are told when one of them refuses, disagrees or is slow."""

from __future__ import annotations

import asyncio

from leadline_client.errors import StorageFailed
from leadline_client.wire import NewTopic
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
