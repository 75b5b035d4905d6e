"""What a coordinator bears from strangers on its channels; a real ZooKeeper, real WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from leadline_client import channel
from leadline_client.channel import Error, Hello, Pong
from leadline_client.errors import (
    InstanceInUse,
    InvalidRequest,
    LeaderNotAvailable,
    TooManyChannels,
    TooManyGroups,
    WrongMemberSecret,
)
from leadline_client.wire import TopicPartition
from leadline_common.zk.session import ZkSession
from leadline_coordinator.runtime.group_manager import Channel
from tests.support.freed import all_freed
from tests.support.services.coordinators import (
    CoordinatorRig,
    FrameConsumer,
    coordinator,
    make_topic,
)
from tests.support.services.zookeeper import until

LIMITS = {
    "group_max_count": 2,
    "group_max_channels": 4,
    "group_address_max_channels": 3,
    "group_max_frames_per_s": 20,
    "group_hello_timeout_ms": 300,
    "offsets_commit_timeout_ms": 300,
}
HELLO = channel.encode(Hello(topics=("orders",)))
GARBAGE = (
    b"\x00\x01",
    "",
    "null",
    '{"type":"hello"',
    '{"type":"welcome"}',
    '{"type":"pong","id":1,"coordinator_epoch":1,"generation":1}',
    '{"type":"hello","topics":["\\ud800"]}',
    '{"type":"hello","topics":{"a":1}}',
    '{"type":"hello","topics":["orders"],"threads":NaN}',
    '{"type":"hello","topics":["orders"],"threads":' + "9" * 5_000 + "}",
    '{"type":"hello","topics":' + "[" * 100_000 + "}",
)


@pytest.fixture
async def rig(zk_chroot: str, zk_session: ZkSession) -> AsyncIterator[CoordinatorRig]:
    await make_topic(zk_session, "orders", 2)
    async with coordinator(zk_chroot, **LIMITS) as made:
        await made.active()
        yield made


def opened(rig: CoordinatorRig, group: str = "g") -> connect:
    url = "ws" + rig.url.removeprefix("http") + channel.CHANNEL_PATH.format(group=group)
    return connect(url, ping_interval=None)


async def last_error(socket: ClientConnection) -> int:
    """Return the code of the error that ends a channel."""
    last: channel.Frame | None = None
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(30):
            while True:
                last = channel.decode(await socket.recv())
    assert isinstance(last, Error), last
    return last.error_code


async def test_garbage_closes_the_channel_and_changes_nothing(rig: CoordinatorRig) -> None:
    for message in GARBAGE:
        async with opened(rig) as socket:
            await socket.send(message)
            assert await last_error(socket) // 100 == 400, message[:60]
    async with opened(rig):  # it says nothing
        await until(lambda: rig.service.channels.total == 1, "the channel is counted")
        await until(lambda: rig.service.channels.total == 0, "the channel is closed")

    assert (await rig.http.get("/v1/groups")).json() == {"groups": []}


async def test_a_member_that_sends_too_many_frames_is_disconnected(rig: CoordinatorRig) -> None:
    async with opened(rig) as socket:
        await socket.send(HELLO)
        pong = channel.encode(Pong(id=0, coordinator_epoch=0, generation=0))
        for _ in range(100):
            await socket.send(pong)
        assert await last_error(socket) == InvalidRequest.code


async def test_a_channel_that_ended_is_freed_without_the_garbage_collector(
    rig: CoordinatorRig,
) -> None:
    async with all_freed(Channel, WebSocketsSansIOProtocol):
        for _ in range(3):
            async with opened(rig) as socket:
                await socket.send(HELLO)
                await until(lambda: rig.service.channels.total == 1, "the channel is counted")
            await until(lambda: rig.service.channels.total == 0, "the channel is closed")


async def test_channels_and_groups_are_as_many_as_allowed(rig: CoordinatorRig) -> None:
    first, second = FrameConsumer(rig.url, "one"), FrameConsumer(rig.url, "two")
    await first.connect()
    await second.connect()
    await until(lambda: bool(first.owned and second.owned), "both consume")
    async with opened(rig, "three") as third:
        async with opened(rig) as fourth:
            assert await last_error(fourth) == TooManyChannels.code
        await third.send(HELLO)
        assert await last_error(third) == TooManyGroups.code

    row = {"topic": "orders", "partition": 0, "offset": 1}
    refused = await rig.http.post("/v1/groups/three/offsets", json={"offsets": [row]})
    assert refused.json()["error_code"] == TooManyGroups.code
    groups = (await rig.http.get("/v1/groups")).json()["groups"]
    assert [(one["group"], one["members"]) for one in groups] == [("one", 1), ("two", 1)]
    for consumer in (first, second):
        await consumer.drop()
    await until(lambda: rig.service.channels.total == 0, "all channels are closed")


async def test_a_member_proves_itself_to_the_next_coordinator_and_nobody_else_does(
    rig: CoordinatorRig, zk_chroot: str
) -> None:
    member = FrameConsumer(rig.url, "g", instance_id="blue", instance_secret="b" * 16)
    await member.connect()
    await until(lambda: len(member.owned) == 2, "it consumes")
    async with coordinator(zk_chroot, 2) as successor:
        await rig.resign()
        await successor.active()
        before = (await successor.http.get("/v1/groups/g")).json()
        for said, code in (
            ({"member": member.member, "secret": "guess"}, WrongMemberSecret.code),
            ({"instance_id": "blue"}, WrongMemberSecret.code),
        ):
            stranger = FrameConsumer(successor.url, "g", owned=(("orders", (0, 1)),), **said)
            await stranger.connect()
            await stranger.closed.wait()
            assert stranger.error is not None
            assert stranger.error.error_code == code
        assert (await successor.http.get("/v1/groups/g")).json() == before
        assert "secret" not in json.dumps(before)

        await member.reconnect(successor.url)

        await until(lambda: member.starts[-1].coordinator_epoch == 2, "it is started")
        assert member.welcome is not None
        assert (member.welcome.coordinator_epoch, member.welcome.secret) == (2, None)
        await member.drop()


async def test_a_restarted_static_member_without_an_instance_secret_waits_for_its_turn(
    rig: CoordinatorRig,
) -> None:
    first = FrameConsumer(rig.url, "g", instance_id="blue")
    await first.connect()
    await until(lambda: len(first.owned) == 2, "it consumes")
    twin = FrameConsumer(rig.url, "g", instance_id="blue")
    await twin.connect()
    await twin.closed.wait()
    assert twin.error is not None
    assert (twin.error.error_code, twin.error.retriable) == (InstanceInUse.code, True)
    assert not first.closed.is_set()

    await first.drop()
    while not twin.owned:
        await twin.connect()
        await until(lambda: twin.closed.is_set() or bool(twin.owned), "it is refused or consumes")
    assert len(twin.owned) == 2
    await twin.drop()


async def test_in_a_failover_of_brokers_only_commits_beyond_the_known_end_wait(
    rig: CoordinatorRig,
) -> None:
    def rows(offset: int) -> dict[str, object]:
        return {"offsets": [{"topic": "orders", "partition": 0, "offset": offset}]}

    path, partition = "/v1/groups/g/offsets", TopicPartition("orders", 0)
    rig.brokers.log_end_points[partition] = (5, 1)
    assert (await rig.http.post(path, json=rows(4))).json()["offsets"][0]["error_code"] == 0
    rig.brokers.log_end_points[partition] = None

    assert (await rig.http.post(path, json=rows(5))).json()["offsets"][0]["error_code"] == 0
    waited = (await rig.http.post(path, json=rows(6))).json()["offsets"][0]

    assert waited["error_code"] == LeaderNotAvailable.code
    shown = (await rig.http.get(path)).json()["offsets"]
    assert [row["offset"] for row in shown] == [5]
