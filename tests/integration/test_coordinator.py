"""A coordinator against a real ZooKeeper: groups come about, change, and outlive it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from leadline_common.zk.session import ZkSession
from tests.support.coordinators import (
    CoordinatorRig,
    FrameConsumer,
    all_of,
    coordinator,
    make_topic,
)
from tests.support.zookeeper import until

PARTITIONS = 6


@pytest.fixture
async def rig(zk_chroot: str, zk_session: ZkSession) -> AsyncIterator[CoordinatorRig]:
    await make_topic(zk_session, "orders", PARTITIONS)
    async with coordinator(zk_chroot) as made:
        await made.active()
        yield made


async def settled(
    *consumers: FrameConsumer, topic: str = "orders", count: int = PARTITIONS
) -> None:
    """Wait until these consumers own the whole topic, each partition once."""

    def owned_once() -> bool:
        owned = [partition for consumer in consumers for partition in consumer.owned]
        return len(owned) == len(set(owned)) and set(owned) == all_of(topic, count)

    await until(owned_once, f"{len(consumers)} consumers own {topic}")


async def test_consumers_join_and_leave_and_every_partition_has_one_owner(
    rig: CoordinatorRig,
) -> None:
    first, second = FrameConsumer(rig.url, "g"), FrameConsumer(rig.url, "g")
    await first.connect()
    await settled(first)
    await second.connect()
    await until(lambda: len(second.owned) == PARTITIONS // 2, "the second has its half")
    await settled(first, second)
    await second.drop()
    await until(lambda: len(first.owned) == PARTITIONS, "the first has taken over")
    await first.drop()
