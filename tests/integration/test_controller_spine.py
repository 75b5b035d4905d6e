"""Controllers on a real ZooKeeper with brokers that record: races, failures, topics, counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from leadline_common import znodes
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import TopicAssignment
from tests.support.controllers import (
    RecordingBroker,
    RunningController,
    active,
    read_state,
)
from tests.support.zookeeper import until

Make = Callable[..., Awaitable[Any]]


class Rig:
    """Starts controllers and brokers for one test, and stops them."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.controllers: list[RunningController] = []
        self.brokers: dict[int, RecordingBroker] = {}

    async def controller(self, **options: Any) -> RunningController:
        made = RunningController(len(self.controllers) + 1, self.hosts, **options)
        self.controllers.append(made)
        await made.start()
        return made

    async def add_brokers(self, *ids: int) -> None:
        for broker_id in ids:
            self.brokers[broker_id] = RecordingBroker(broker_id, self.hosts)
            await self.brokers[broker_id].start()

    async def up(self, brokers: int = 3, **options: Any) -> RunningController:
        """Start a controller and brokers, and wait until all have their grant."""
        controller = await self.controller(**options)
        await self.add_brokers(*range(1, brokers + 1))
        await active(self.controllers)
        await until(
            lambda: all(b.metadata_version for b in self.brokers.values()), "brokers are granted"
        )
        return controller

    async def stop(self) -> None:
        await asyncio.gather(*(c.stop() for c in self.controllers))
        await asyncio.gather(*(b.stop() for b in self.brokers.values()))


@pytest.fixture
async def rig(zk_chroot: str) -> AsyncIterator[Rig]:
    made = Rig(zk_chroot)
    yield made
    await made.stop()


async def create(controller: RunningController, name: str = "orders", **body: Any) -> Any:
    answer = await controller.http.post("/v1/topics", json={"name": name, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_topic_is_created_and_every_broker_has_it(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    made = await create(controller, partitions=6, replication_factor=3)
    assert made["partitions"] == 6
    for broker in rig.brokers.values():
        assert len(broker.roles) == 6
        assert broker.metadata["orders"].topic_id == made["topic_id"]
    state = await read_state(zk_session, "orders", 0)
    assert (state.leader, state.leader_epoch, len(state.isr)) == (1, 0, 3)
    document = (await controller.http.get("/v1/metadata")).json()
    assert document["topics"]["orders"]["partitions"][0][:3] == [0, 1, 0]


async def test_leadership_moves_when_a_leader_dies(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    await create(controller, partitions=6, replication_factor=3)
    await rig.brokers[1].leave()
    left = [rig.brokers[2], rig.brokers[3]]
    await until(
        lambda: all(r.leader != 1 and 1 not in r.isr for b in left for r in b.roles.values()),
        "the others are told",
    )
    for partition in range(6):
        state = await read_state(zk_session, "orders", partition)
        assert state.leader in (2, 3)
        assert state.leader_epoch == 1
        assert set(state.isr) == {2, 3}


async def test_a_topic_is_deleted_and_may_be_created_again(rig: Rig, zk_session: ZkSession) -> None:
    controller = await rig.up()
    first = await create(controller, partitions=3, replication_factor=2)
    answer = await controller.http.delete("/v1/topics/orders")
    assert (answer.status_code, answer.json()["complete"]) == (200, True)
    assert await zk_session.exists(znodes.topic_path("orders")) is None
    assert await zk_session.get_children(znodes.DELETE_TOPICS) == []
    assert all(not broker.roles for broker in rig.brokers.values())
    assert all("orders" not in broker.metadata for broker in rig.brokers.values())
    second = await create(controller, partitions=3, replication_factor=2)
    assert second["topic_id"] != first["topic_id"]


async def test_a_topic_written_into_zookeeper_by_hand_is_taken_up(
    rig: Rig, zk_session: ZkSession
) -> None:
    await rig.up()
    by_hand = znodes.encode_topic(TopicAssignment("", {0: (2, 3), 1: (3, 1)}))
    await zk_session.create(znodes.topic_path("manual"), by_hand)
    await until(lambda: "manual" in rig.brokers[3].metadata, "brokers hear of it")
    await until(lambda: len(rig.brokers[3].roles) == 2, "replicas have roles")
    data, _ = await zk_session.get(znodes.topic_path("manual"))
    assert znodes.decode_topic(data).topic_id
    assert (await read_state(zk_session, "manual", 1)).leader == 3
