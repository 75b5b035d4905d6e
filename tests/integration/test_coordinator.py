"""A coordinator against a real ZooKeeper: groups come about, change, and outlive it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import structlog
from websockets.asyncio.client import connect

from leadline_broker.adapters.zookeeper import ZkBrokerStore
from leadline_broker.runtime.cluster.coordinator_finder import CoordinatorFinder
from leadline_client import channel
from leadline_client.errors import UnknownMember
from leadline_client.wire import GroupState, TopicPartition
from leadline_common import consumer_znodes, znodes
from leadline_common.clock import SystemClock
from leadline_common.rpc import ControllerRow
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.ports import SessionState
from leadline_common.zk.session import ZkSession
from leadline_coordinator.domain.records import Ends
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.maintenance import GroupMaintenance
from tests.support.services.coordinators import (
    CoordinatorRig,
    FrameConsumer,
    all_of,
    coordinator,
    make_topic,
)
from tests.support.services.zookeeper import SESSION_TIMEOUT_MS, until

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
        "secret": consumer.secret,
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
    for partition in range(PARTITIONS):
        committed = await commit(rig, first, partition, 7)
        assert committed.json()["offsets"][0]["error_code"] == 0
    await second.connect()
    await until(lambda: len(second.owned) == PARTITIONS // 2, "the second has its half")
    await until(lambda: first.generation == second.generation, "both are of one generation")

    mine, lost = min(first.owned)[1], min(second.owned)[1]
    stale = await commit(rig, first, mine, 8, generation=old)
    foreign = await commit(rig, first, lost, 8)
    zombie = await commit(rig, first, mine, 8, member="nobody")
    epoch = await commit(rig, first, mine, 8, coordinator_epoch=0)
    stranger = await commit(rig, first, mine, 8, member=None, secret=None)

    assert (stale.status_code, stale.json()["error_code"]) == (409, 40970)
    assert foreign.json()["offsets"][0]["error_code"] == 40975
    assert zombie.json()["error_code"] == 40451
    assert epoch.json()["error_code"] == 40970
    assert stranger.json()["error_code"] == 40972
    assert ("orders", lost, 7, None) in second.starts[-1].offsets
    offsets = (await rig.http.get("/v1/groups/g/offsets")).json()["offsets"]
    assert [row["offset"] for row in offsets] == [7] * PARTITIONS
    for consumer in (first, second):
        await consumer.drop()


async def test_brokers_name_the_coordinator_and_hear_when_it_goes(
    rig: CoordinatorRig, zk_chroot: str
) -> None:
    store = ZkBrokerStore(1, zk_chroot, SESSION_TIMEOUT_MS, SystemClock())
    await store.connect(lambda: None, lambda: None)
    finder = CoordinatorFinder(store)
    following = asyncio.create_task(finder.run())
    await until(lambda: finder.current == ControllerRow(1, rig.url, 1), "it is named")

    await rig.resign()

    await until(lambda: finder.current is None, "it is named no more")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await store.close()


@asynccontextmanager
async def group_of(
    rig: CoordinatorRig, count: int, **hello: Any
) -> AsyncIterator[list[FrameConsumer]]:
    """A settled group; its consumers are lost at the end."""
    consumers = [FrameConsumer(rig.url, "g", **hello) for _ in range(count)]
    for consumer in consumers:
        await consumer.connect()
    await until(lambda: all(one.owned for one in consumers), "everybody has a part")
    await settled(*consumers)
    try:
        yield consumers
    finally:
        for consumer in consumers:
            await consumer.drop()


async def test_a_successor_moves_nothing_when_everybody_comes_back(
    rig: CoordinatorRig, zk_chroot: str
) -> None:
    async with coordinator(zk_chroot, 2) as standby, group_of(rig, 3) as consumers:
        before = [set(consumer.owned) for consumer in consumers]
        generation = consumers[0].generation
        await commit(rig, consumers[0], min(consumers[0].owned)[1], 11)
        for consumer in consumers:
            consumer.stops.clear()

        await rig.resign()
        await standby.active()
        for consumer in consumers:
            await consumer.closed.wait()
            await consumer.reconnect(standby.url)

        await until(
            lambda: all(one.starts[-1].coordinator_epoch == 2 for one in consumers),
            "everybody is started by the successor",
        )
        body = (await standby.http.get("/v1/groups/g")).json()
        assert [consumer.owned for consumer in consumers] == before
        assert not any(consumer.stops for consumer in consumers)
        assert (body["generation"], body["coordinator_epoch"]) == (generation, 2)
        offsets = (await standby.http.get("/v1/groups/g/offsets")).json()["offsets"]
        assert [row["offset"] for row in offsets] == [11]


async def test_what_a_lost_member_held_goes_on_under_a_successor(
    rig: CoordinatorRig, zk_chroot: str
) -> None:
    async with coordinator(zk_chroot, 2) as standby, group_of(rig, 2) as (first, second):
        await rig.resign()
        await standby.active()
        await second.drop()
        await first.reconnect(standby.url)

        await until(lambda: len(first.owned) == PARTITIONS, "it has the lost one's part too")


async def test_a_coordinator_that_was_succeeded_cannot_write(
    rig: CoordinatorRig, zk_chroot: str
) -> None:
    async with group_of(rig, 1) as (consumer,):
        session = ZkSession()
        await session.start(zk_chroot, SESSION_TIMEOUT_MS)
        _, stat = await session.get(consumer_znodes.COORDINATOR_EPOCH)
        await session.set(consumer_znodes.COORDINATOR_EPOCH, b"7", stat.version)

        answer = await commit(rig, consumer, 0, 3)

        assert (answer.status_code, answer.json()["error_code"]) == (421, 42151)
        assert answer.json()["outcome"] == "refused"
        group = consumer_znodes.topic_offsets_path("g", "orders")
        assert await session.exists(group) is None
        await session.close()


async def test_a_coordinator_whose_node_was_deleted_lets_one_be_elected(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    """An operator may delete it. Without a standby the same process has to lead again."""
    async with group_of(rig, 1) as (consumer,):
        await zk_session.delete(consumer_znodes.COORDINATOR, ANY_VERSION)

        await consumer.closed.wait()
        await rig.active()
        await consumer.reconnect(rig.url)

        await until(lambda: consumer.starts[-1].coordinator_epoch == 2, "the next term starts it")
        answer = await commit(rig, consumer, 0, 3)
        assert answer.json()["offsets"][0]["error_code"] == 0


async def test_a_silent_member_is_evicted_and_notified(rig: CoordinatorRig) -> None:
    async with group_of(rig, 2) as (first, second):
        second.answers_pings = False

        await until(lambda: len(first.owned) == PARTITIONS, "the other has everything")

        await until(lambda: second.error is not None, "it gets the error")
        assert second.error is not None
        assert second.error.error_code == 40451
        zombie = await commit(rig, second, 5, 9)
        assert zombie.json()["error_code"] == 40451


async def test_a_new_topic_and_new_partitions_reach_the_groups_that_they_concern(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    consumer = FrameConsumer(rig.url, "g", topics=None, pattern="ord.*", protocol="cooperative")
    await consumer.connect()
    await settled(consumer)

    await make_topic(zk_session, "orders-eu", 2)
    await make_topic(zk_session, "__orders", 2)
    await until(lambda: len(consumer.owned) == PARTITIONS + 2, "the new topic is read")
    await make_topic(zk_session, "orders-eu", 5, topic_id="same")
    await until(lambda: len(consumer.owned) == PARTITIONS + 5, "the new partitions are read")
    await zk_session.delete(znodes.topic_path("orders-eu"), ANY_VERSION)
    await until(lambda: len(consumer.owned) == PARTITIONS, "the deleted topic is read no more")

    assert not any(topic == "__orders" for topic, _ in consumer.owned)
    assert {topic for stop in consumer.stops for topic, _ in stop.partitions} == {"orders-eu"}
    await consumer.drop()


async def test_watches_of_topics_that_a_broken_connection_took_are_set_again(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    await make_topic(zk_session, "orders", PARTITIONS)
    async with coordinator(zk_chroot, group_topics_interval_ms=600_000) as rig:
        await rig.active()
        consumer = FrameConsumer(rig.url, "g", topics=None, pattern=".*")
        await consumer.connect()
        await settled(consumer)

        await break_connection(rig)
        await make_topic(zk_session, "new", 2)

        await until(
            lambda: consumer.owned == all_of("orders", PARTITIONS) | all_of("new", 2),
            "the new topic is noticed",
        )
        await consumer.drop()


async def break_connection(rig: CoordinatorRig) -> None:
    """Break the connection of a coordinator to ZooKeeper, and wait until it has another one."""
    session: Any = rig.elector.election.session
    states: list[SessionState] = []
    transport = session._session._transport
    tell = transport._on_state

    def on_state(state: SessionState) -> None:
        states.append(state)
        tell(state)

    transport._on_state = on_state
    transport._client._connection._socket.shutdown(socket.SHUT_RDWR)
    expected = [SessionState.SUSPENDED, SessionState.CONNECTED]
    await until(lambda: states == expected, "the coordinator is connected again")


async def test_a_topic_that_comes_while_its_subscriber_is_being_let_in_is_not_missed(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    await make_topic(zk_session, "orders", 1)
    async with coordinator(zk_chroot, rebalance_answer_timeout_ms=20_000) as rig:
        await rig.active()
        first = FrameConsumer(rig.url, "g")
        second = FrameConsumer(rig.url, "g", topics=("late",))
        first.answers_starts = second.answers_starts = False
        await first.connect()
        await until(lambda: bool(first.starts), "the first is being started")
        await second.connect()
        await until(lambda: second.welcome is not None, "the second is let in meanwhile")
        await first.answer_start()
        await until(lambda: bool(second.starts), "there is nothing for the second yet")

        await make_topic(zk_session, "late", 1)
        await until(lambda: "late" in topics_of(rig), "the topic is known")
        second.answers_starts = True
        await second.answer_start()

        await until(lambda: second.owned == all_of("late", 1), "the second has the topic")
        await first.drop()
        await second.drop()


async def test_a_member_that_leaves_hands_on_at_once(rig: CoordinatorRig) -> None:
    async with group_of(rig, 2) as (first, second):
        leave = f"/v1/groups/g/members/{second.member}/leave"
        answer = await rig.http.post(leave, json={"secret": second.secret})

        assert answer.status_code == 200
        await until(lambda: len(first.owned) == PARTITIONS, "the other has everything")
        again = await rig.http.post(leave, json={"secret": second.secret})
        assert again.json()["error_code"] == 40451


async def test_a_standby_forwards_requests_and_turns_consumers_away(
    rig: CoordinatorRig, zk_chroot: str
) -> None:
    async with coordinator(zk_chroot, 2) as standby, group_of(rig, 1):
        await until(lambda: standby.service.active is not None, "the standby knows who is active")
        body = (await standby.http.get("/v1/groups/g")).json()
        row = {"topic": "orders", "partition": 0, "offset": 3}
        commit = await standby.http.post("/v1/groups/other/offsets", json={"offsets": [row]})
        assert commit.json()["offsets"][0]["error_code"] == 0
        lost = await standby.http.post("/v1/groups/g/consumers/none/sync", json={"secret": "s"})
        assert lost.json()["error_code"] == UnknownMember.code
        stray = FrameConsumer(standby.url, "g")
        await stray.connect()
        await stray.closed.wait()

        assert len(body["members"]) == 1
        assert stray.error is not None
        assert stray.error.error_code == 42151
        assert (await standby.http.get("/v1/coordinator")).json() == {
            "id": 2,
            "url": standby.url,
            "active": False,
            "coordinator": {"id": 1, "url": rig.url, "epoch": 1},
        }
        await stray.drop()


async def test_the_offsets_of_a_group_without_members_are_set_as_asked(
    rig: CoordinatorRig,
) -> None:
    rig.brokers.ends = {
        TopicPartition("orders", n): Ends(10, 20 + n, 15) for n in range(PARTITIONS)
    }
    url = "/v1/groups/g/offsets/reset"

    async def reset(**body: Any) -> httpx.Response:
        return await rig.http.post(url, json=body)

    dry = await reset(to="earliest", topics=["orders"], dry_run=True)
    assert [row["previous"] for row in dry.json()["offsets"]] == [None] * PARTITIONS
    assert (await rig.http.get("/v1/groups/g")).json()["error_code"] == 40450
    assert (await reset(to="latest")).json()["error_code"] == 40450
    await reset(to="latest", topics=["orders"])
    dry = await reset(to="timestamp", timestamp=5, dry_run=True)
    assert [(row["previous"], row["offset"]) for row in dry.json()["offsets"]] == [
        (20 + n, 15) for n in range(PARTITIONS)
    ]
    one = [{"topic": "orders", "partition": 1, "offset": 12}]
    assert (await reset(to="offsets", offsets=one)).json()["offsets"] == [
        {"topic": "orders", "partition": 1, "previous": 21, "offset": 12}
    ]
    beyond = [{"topic": "orders", "partition": 1, "offset": 99}]
    assert (await reset(to="offsets", offsets=beyond)).json()["error_code"] == 41650
    assert (await reset(to="latest", topics=["nothing"])).json()["error_code"] == 40403
    lag = (await rig.http.get("/v1/groups/g/lag")).json()
    assert lag["total"] == 9
    assert lag["partitions"][1] == {
        "topic": "orders",
        "partition": 1,
        "committed": 12,
        "end": 21,
        "lag": 9,
        "member": None,
    }
    async with group_of(rig, 1):
        assert (await reset(to="latest", topics=["orders"])).json()["error_code"] == 40972
        assert (await rig.http.delete("/v1/groups/g")).json()["error_code"] == 40972


async def test_a_group_is_deleted_with_all_that_was_recorded(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    async with group_of(rig, 1) as (consumer,):
        await commit(rig, consumer, 2, 4)
        leave = f"/v1/groups/g/members/{consumer.member}/leave"
        await rig.http.post(leave, json={"secret": consumer.secret})
        await until(
            lambda: rig.service.manager("g").group.state is GroupState.EMPTY, "the group is empty"
        )

    deleted = await rig.http.delete("/v1/groups/g")

    assert deleted.status_code == 200
    assert (await rig.http.get("/v1/groups/g")).json()["error_code"] == 40450
    assert await zk_session.get_children(consumer_znodes.GROUPS) == []


async def test_offsets_of_a_topic_that_was_recreated_meanwhile_are_dropped(
    rig: CoordinatorRig, zk_chroot: str, zk_session: ZkSession
) -> None:
    shown = 'leadline_coordinator_group_members{group="g"}'
    async with group_of(rig, 1) as (consumer,):
        await commit(rig, consumer, 2, 4)
        assert shown in (await rig.http.get("/metrics")).text
    await rig.resign()
    assert shown not in (await rig.http.get("/metrics")).text
    await make_topic(zk_session, "orders", PARTITIONS, topic_id="another")

    async with coordinator(zk_chroot, 2) as successor:
        await successor.active()

        assert (await successor.http.get("/v1/groups/g/offsets")).json() == {"offsets": []}


@pytest.mark.parametrize(
    "text", ["no json", '{"type":"pong","id":1,"coordinator_epoch":1,"generation":0}']
)
async def test_who_does_not_begin_with_hello_is_told_why(rig: CoordinatorRig, text: str) -> None:
    url = rig.url.replace("http", "ws") + "/v1/groups/g/channel"
    async with connect(url) as socket:
        await socket.send(text)
        error = channel.decode(await socket.recv())

    assert isinstance(error, channel.Error)
    assert error.error_code == 40050


async def test_offsets_of_a_deleted_topic_and_of_a_forgotten_group_go(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    await make_topic(zk_session, "returns", 1)
    await until(lambda: "returns" in topics_of(rig), "the topic is known")
    rows = [{"topic": name, "partition": 0, "offset": 3} for name in ("orders", "returns")]
    await rig.http.post("/v1/groups/g/offsets", json={"offsets": rows})

    await zk_session.delete(znodes.topic_path("returns"), ANY_VERSION)

    await until(
        lambda: list(rig.service.manager("g").committer.offsets) == [("orders", 0)],
        "the offset of the deleted topic is gone",
    )
    maintenance = GroupMaintenance(active_part(rig))
    rig.brokers.ends = {TopicPartition("orders", 0): Ends(0, 8)}
    await maintenance.measure()
    assert (
        'leadline_coordinator_group_lag_records{group="g"} 5.0'
        in (await rig.http.get("/metrics")).text
    )
    assert await maintenance.expire() == []
    rig.service.manager("g").group.empty_since_wall_ms = 1
    rig.service.manager("g").committer.offsets.clear()
    assert await maintenance.expire() == ["g"]
    assert await zk_session.exists(consumer_znodes.group_path("g")) is None


async def test_a_group_has_no_lag_any_more_once_its_last_offset_is_gone(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    await commit_offsets(rig, ("orders", 3))
    rig.brokers.ends = {TopicPartition("orders", 0): Ends(0, 8)}
    maintenance = GroupMaintenance(active_part(rig))
    await maintenance.measure()
    assert await shown_lag(rig) == ['lag_records{group="g"} 5.0']

    await zk_session.delete(znodes.topic_path("orders"), ANY_VERSION)
    await until(
        lambda: not rig.service.manager("g").committer.offsets, "the offset of the topic is gone"
    )
    await maintenance.measure()

    assert await shown_lag(rig) == []


async def test_a_topic_keeps_its_lag_while_the_end_of_a_partition_is_unknown(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    await make_topic(zk_session, "returns", 1)
    await until(lambda: "returns" in topics_of(rig), "the topic is known")
    await commit_offsets(rig, ("orders", 3), ("returns", 1))
    orders, returns = TopicPartition("orders", 0), TopicPartition("returns", 0)
    maintenance = GroupMaintenance(active_part(rig))
    rig.brokers.ends = {}
    await maintenance.measure()
    assert await shown_lag(rig) == []

    rig.brokers.ends = {orders: Ends(0, 8), returns: Ends(0, 2)}
    await maintenance.measure()
    rig.brokers.ends = {returns: Ends(0, 4)}
    await maintenance.measure()

    assert await shown_lag(rig) == ['lag_records{group="g"} 8.0']
    assert await shown_lag(rig, "topic_lag_records") == [
        'topic_lag_records{group="g",topic="orders"} 5.0',
        'topic_lag_records{group="g",topic="returns"} 3.0',
    ]


async def commit_offsets(rig: CoordinatorRig, *offsets: tuple[str, int]) -> None:
    """Commit an offset in partition 0 of each topic for group g, which has no members."""
    rows = [{"topic": topic, "partition": 0, "offset": offset} for topic, offset in offsets]
    answer = await rig.http.post("/v1/groups/g/offsets", json={"offsets": rows})
    answer.raise_for_status()


async def shown_lag(rig: CoordinatorRig, name: str = "lag_records") -> list[str]:
    """Return the samples of a metric of each group."""
    prefix, text = "leadline_coordinator_group_", (await rig.http.get("/metrics")).text
    lines = (line.removeprefix(prefix) for line in text.splitlines())
    return [line for line in lines if line.startswith(f"{name}{{")]


async def test_the_lag_that_was_being_measured_when_a_term_ended_is_not_shown(
    rig: CoordinatorRig,
) -> None:
    rows = [{"topic": "orders", "partition": 0, "offset": 3}]
    await rig.http.post("/v1/groups/g/offsets", json={"offsets": rows})
    rig.brokers.ends = {TopicPartition("orders", 0): Ends(0, 8)}
    rig.brokers.answering.clear()
    measuring = asyncio.create_task(GroupMaintenance(active_part(rig)).measure())
    async with asyncio.timeout(20):
        await rig.brokers.asked.wait()
        await rig.resign()
        rig.brokers.answering.set()
        await measuring

    assert "coordinator_group_lag_records{" not in (await rig.http.get("/metrics")).text


async def test_offsets_of_a_removed_partition_do_not_come_back_with_it(
    rig: CoordinatorRig, zk_session: ZkSession, zk_chroot: str
) -> None:
    async def resize(count: int) -> None:
        await make_topic(zk_session, "returns", count, topic_id="same")

    async def committed(url: CoordinatorRig) -> list[int]:
        found = (await url.http.get("/v1/groups/g/offsets")).json()["offsets"]
        return [row["partition"] for row in found]

    await resize(3)
    await until(lambda: topics_of(rig).get("returns") == 3, "the topic is known")
    rows = [{"topic": "returns", "partition": number, "offset": 3} for number in range(3)]
    await rig.http.post("/v1/groups/g/offsets", json={"offsets": rows})

    await resize(2)
    offsets = rig.service.manager("g").committer.offsets
    await until(lambda: ("returns", 2) not in offsets, "the offset of the third is gone")
    await resize(3)
    assert await committed(rig) == [0, 1]

    await rig.resign()
    await resize(1)
    async with coordinator(zk_chroot, 2) as successor:
        await successor.active()
        assert await committed(successor) == [0]


def active_part(rig: CoordinatorRig) -> Coordinator:
    assert rig.elector.coordinator is not None
    return rig.elector.coordinator


def topics_of(rig: CoordinatorRig) -> dict[str, int]:
    return active_part(rig).topics.counts


async def test_more_than_one_transaction_holds_is_committed_and_read_again(
    rig: CoordinatorRig, zk_chroot: str, zk_session: ZkSession
) -> None:
    await make_topic(zk_session, "wide", 1_500)
    await until(lambda: "wide" in topics_of(rig), "the topic is known")
    rows = [
        {"topic": "wide", "partition": number, "offset": number, "metadata": "m" * 1_000}
        for number in range(1_500)
    ]
    for _ in range(2):  # to nodes that are made, and to nodes that are there
        answer = await rig.http.post("/v1/groups/wide/offsets", json={"offsets": rows})
        assert {row["error_code"] for row in answer.json()["offsets"]} == {0}
    await rig.resign()

    async with coordinator(zk_chroot, 2) as successor:
        await successor.active()

        read = (await successor.http.get("/v1/groups/wide/offsets")).json()["offsets"]
        assert [row["offset"] for row in read] == list(range(1_500))
        assert {row["metadata"] for row in read} == {"m" * 1_000}


async def test_commits_without_a_pause_hold_up_no_rebalance(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    await make_topic(zk_session, "orders", PARTITIONS)
    hello = {"protocol": "cooperative", "assignor": "sticky"}
    async with coordinator(zk_chroot, offsets_commit_interval_ms=200) as rig:
        await rig.active()
        async with group_of(rig, 1, **hello) as (first,):

            async def commit_on(partition: int) -> None:
                while True:
                    await commit(rig, first, partition, 1)

            busy = [asyncio.create_task(commit_on(number)) for number in range(PARTITIONS)]
            second = FrameConsumer(rig.url, "g", **hello)
            await second.connect()

            await until(lambda: len(second.owned) == PARTITIONS // 2, "the second has its half")

            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            await second.drop()


ROW = {"topic": "orders", "partition": 0, "offset": 1}
BAD_REQUESTS: list[tuple[str, dict[str, Any], int, str]] = [
    ("offsets", {}, 40050, "offsets"),
    ("offsets", {"offsets": []}, 40050, "offsets"),
    ("offsets", {"offsets": [ROW | {"offset": -1}]}, 40050, "offset"),
    ("offsets", {"offsets": [ROW | {"offset": "1"}]}, 40050, "offset"),
    ("offsets", {"offsets": [ROW | {"surprise": 1}]}, 40050, "surprise"),
    ("offsets", {"offsets": [ROW], "member": "m"}, 40050, "generation"),
    (
        "offsets",
        {"offsets": [ROW], "member": "m", "generation": 1, "coordinator_epoch": 1},
        40450,
        "g",
    ),
    ("offsets/reset", {"to": "somewhere"}, 40050, "to"),
    ("offsets/reset", {"to": "timestamp"}, 40050, "timestamp"),
    ("offsets/reset", {"to": "offsets"}, 40050, "offsets"),
    ("offsets/reset", {"to": "latest", "topics": ["orders"]}, 50351, "orders-0"),
    (
        "offsets/reset",
        {"to": "latest", "partitions": [{"topic": "orders", "partition": 9}]},
        40402,
        "6",
    ),
    ("offsets/reset", {"to": "latest"}, 40450, "g"),
    ("members/nobody/leave", {}, 40450, "g"),
    ("rebalance", {}, 40450, "g"),
]


async def test_bad_requests_are_refused_by_name_and_change_nothing(
    rig: CoordinatorRig, zk_session: ZkSession
) -> None:
    for path, body, code, named in BAD_REQUESTS:
        answer = await rig.http.post(f"/v1/groups/g/{path}", json=body)

        error = answer.json()
        assert (error["error_code"], error["outcome"]) == (code, "refused"), (path, body, error)
        assert named in error["message"], (path, body, error)
    long = await rig.http.post(f"/v1/groups/{'g' * 256}/offsets", json={"offsets": [ROW]})
    assert long.json()["error_code"] == 40050
    assert await zk_session.get_children(consumer_znodes.GROUPS) == []
    assert (await rig.http.get("/v1/groups")).json() == {"groups": []}


async def test_a_fault_in_one_group_leaves_the_others_and_the_term_alone(
    rig: CoordinatorRig,
) -> None:
    first = FrameConsumer(rig.url, "faulty")
    await first.connect()
    await settled(first)
    term = rig.elector.coordinator
    assert isinstance(term, Coordinator)
    ticked = asyncio.Event()

    def fail() -> None:
        ticked.set()
        raise RuntimeError("a bug")

    with structlog.testing.capture_logs() as logs:
        term.groups["faulty"].on_tick = fail  # type: ignore[method-assign]  # a bug in one group
        async with asyncio.timeout(20):
            await ticked.wait()
        ticked.clear()
        async with asyncio.timeout(20):
            await ticked.wait()
        other = FrameConsumer(rig.url, "other")
        await other.connect()
        await settled(other)
        assert rig.elector.coordinator is term
        del term.groups["faulty"].on_tick
        await until(lambda: not term._failing, "the group is ticked again")
    assert [line["group"] for line in logs if line["event"] == "a group failed"] == ["faulty"]
    for consumer in (first, other):
        await consumer.drop()
