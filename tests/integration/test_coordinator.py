"""A coordinator against a real ZooKeeper: groups come about, change, and outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from leadline_broker.adapters.zookeeper import ZkBrokerStore
from leadline_broker.runtime.coordinator import CoordinatorFinder
from leadline_client.wire import ControllerInfo
from leadline_common.clock import SystemClock
from leadline_common.zk.session import ZkSession
from tests.support.coordinators import (
    CoordinatorRig,
    FrameConsumer,
    all_of,
    coordinator,
    make_topic,
)
from tests.support.zookeeper import SESSION_TIMEOUT_MS, until

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


async def commit(
    rig: CoordinatorRig, consumer: FrameConsumer, partition: int, offset: int, **changed: Any
) -> httpx.Response:
    assert consumer.welcome is not None
    body = {
        "member": consumer.member,
        "generation": consumer.generation,
        "coordinator_epoch": consumer.welcome.coordinator_epoch,
        "offsets": [{"topic": "orders", "partition": partition, "offset": offset}],
    }
    return await rig.http.post("/v1/groups/g/offsets", json=body | changed)


async def test_only_the_owner_of_the_present_generation_commits(rig: CoordinatorRig) -> None:
    first, second = FrameConsumer(rig.url, "g"), FrameConsumer(rig.url, "g")
    await first.connect()
    await settled(first)
    old = first.generation
    assert (await commit(rig, first, 5, 7)).json()["offsets"][0]["error_code"] == 0
    await second.connect()
    await until(lambda: len(second.owned) == PARTITIONS // 2, "the second has its half")
    await until(lambda: first.generation == second.generation, "both are of one generation")

    stale = await commit(rig, first, 5, 8, generation=old)
    foreign = await commit(rig, first, 5, 8)
    zombie = await commit(rig, first, 5, 8, member="nobody")
    epoch = await commit(rig, first, 5, 8, coordinator_epoch=0)
    stranger = await commit(rig, first, 5, 8, member=None)

    assert (stale.status_code, stale.json()["error_code"]) == (409, 40970)
    assert foreign.json()["offsets"][0]["error_code"] == 40975
    assert zombie.json()["error_code"] == 40451
    assert epoch.json()["error_code"] == 40970
    assert stranger.json()["error_code"] == 40972
    assert ("orders", 5, 7, None) in second.starts[-1].offsets
    offsets = (await rig.http.get("/v1/groups/g/offsets")).json()["offsets"]
    assert [(row["partition"], row["offset"]) for row in offsets] == [(5, 7)]
    for consumer in (first, second):
        await consumer.drop()


async def test_brokers_name_the_coordinator_and_hear_when_it_goes(
    rig: CoordinatorRig, zk_chroot: str
) -> None:
    store = ZkBrokerStore(1, zk_chroot, SESSION_TIMEOUT_MS, SystemClock())
    await store.connect(lambda: None, lambda: None)
    finder = CoordinatorFinder(store)
    following = asyncio.create_task(finder.run())
    await until(lambda: finder.current == ControllerInfo(1, rig.url, 1), "it is named")

    await rig.resign()

    await until(lambda: finder.current is None, "it is named no more")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await store.close()
