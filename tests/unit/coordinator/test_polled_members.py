"""Members that poll over HTTP, in a coordinator that runs; ZooKeeper and brokers are objects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from leadline_client.channel import Hello
from leadline_client.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupFull,
    StoreOutcomeUnknown,
    TooManyChannels,
    UnknownGroup,
    UnknownMember,
    WrongMemberSecret,
)
from leadline_client.wire import TopicPartition
from leadline_common.cluster_time import ClusterTime
from leadline_common.group_polls import (
    Cursor,
    Position,
    SyncAnswer,
    SyncRequest,
    TopicPositions,
    encode_cursor,
)
from leadline_common.identity import ServiceAddress
from leadline_common.leader_election import ElectionState, Leader, LeadershipTerm, TermEnded
from leadline_common.settings import CoordinatorSettings
from leadline_coordinator.domain.channel_limits import ChannelCount
from leadline_coordinator.domain.members import FIRST_POLL_MS, GroupMember
from leadline_coordinator.domain.records import (
    CommittedOffset,
    GroupRecord,
    StoredGroup,
    TopicState,
)
from leadline_coordinator.domain.subscriptions import PollingTerms
from leadline_coordinator.runtime.context import CoordinatorContext, CoordinatorMetrics
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.group_manager import GroupManager
from leadline_coordinator.runtime.polled_members import PolledMembers
from leadline_coordinator.runtime.ports import BrokerClient, CoordinatorStore
from tests.support.manual_clock import ManualClock
from tests.support.services.cluster import wait_until
from tests.support.services.zookeeper import until

TIMEOUT_MS = 10_000
TERMS = PollingTerms(TIMEOUT_MS, "earliest")
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ENDS = 100


@dataclass
class World:
    """What one coordinator reads and writes; it is its store, its groups and its brokers."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    asked_for_ends: asyncio.Event = field(default_factory=asyncio.Event)
    ends_answer: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    lease: bool = True
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.ends_answer.set()
        self.groups = self
        context = CoordinatorContext(
            store=cast("CoordinatorStore", self),
            brokers=cast("BrokerClient", self),
            term=LeadershipTerm(1, 1),
            settings=CoordinatorSettings(
                coordinator_id=1, group_initial_rebalance_delay_ms=0, group_max_size=3
            ),
            clock=self.clock,
            time=ClusterTime(self.clock, self.clock.wall_ms()),
            metrics=CoordinatorMetrics(),
            new_id=lambda: f"m{next(self._ids)}",
        )
        self.coordinator = Coordinator(context)
        self.counted = ChannelCount(most=5, most_per_address=5)
        self.members = PolledMembers(self.coordinator, self.counted, itertools.count(1).__next__)

    # -- the store -------------------------------------------------------------

    @property
    def unreadable(self) -> Mapping[str, str]:
        """No group has a private ACL."""
        return {}

    async def load(self) -> list[StoredGroup]:
        return []

    async def record(self, term: LeadershipTerm, record: GroupRecord) -> None:
        """Keep nothing: one coordinator is all there is."""

    async def write_offsets(
        self,
        _: LeadershipTerm,
        __: str,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        ___: Sequence[object],
    ) -> None:
        self.offsets |= {one: new.offset for one, new in offsets.items() if new is not None}

    @property
    def session_id(self) -> int:
        return 1

    async def read_election(self, _: object) -> ElectionState:
        """Name this coordinator as the leader."""
        return ElectionState(Leader(1, "", 1, self.session_id), LeadershipTerm(1, 1))

    def on_reconnected(self, _: object) -> None:
        """Never lose the connection."""

    def lease_valid(self) -> bool:
        return self.lease

    async def topic_names(self, _: object = None) -> list[str]:
        return ["t"]

    async def read_topics(self, _: object, __: object) -> dict[str, TopicState]:
        return {"t": TopicState("id", 2)}

    # -- brokers ---------------------------------------------------------------

    async def brokers(self) -> list[ServiceAddress]:
        return []

    async def log_ends(
        self, _: object, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.asked_for_ends.set()
        await self.ends_answer.wait()
        return dict.fromkeys(partitions, (ENDS, 0))

    # -- consumers -------------------------------------------------------------

    @property
    def manager(self) -> GroupManager:
        return self.coordinator.manager("g")

    def join(self, group: str = "g", **hello: Any) -> Consumer:
        welcome = self.members.join(group, Hello(topics=("t",), **hello), TERMS)
        return Consumer(self, welcome.member, welcome.secret or "")

    def pass_time(self, ms: int) -> None:
        """Let time pass as if the coordinator had never stood still."""
        for _ in range(0, ms, 500):
            self.clock.advance(500)
            self.manager.on_tick()


@dataclass
class Consumer:
    """A consumer by the book: it states the cursor of the last answer that it has received."""

    world: World
    name: str
    secret: str
    cursor: str | None = None

    @property
    def member(self) -> GroupMember:
        return self.world.manager.group.member(self.name)

    async def sync(self, cursor: str | None = None, **options: Any) -> SyncAnswer:
        request = SyncRequest(self.secret, cursor or self.cursor, **{"commit": True, **options})
        return await self.world.members.sync("g", self.name, request)

    async def poll(self, **positions: int) -> SyncAnswer:
        """Poll, and receive records up to these positions."""
        answer = await self.sync()
        self.receive(answer, **positions)
        return answer

    def receive(self, answer: SyncAnswer, **positions: int) -> None:
        self.cursor = cursor_of(answer, **positions)

    async def settled(self, *partitions: int) -> None:
        """Poll until this consumer owns these partitions and has to give up nothing."""

        async def is_settled() -> bool:
            answer = await self.poll()
            return owned(answer) == set(partitions) and not answer.revoked

        await wait_until(is_settled, f"{self.name} owns {partitions}")


def owned(answer: SyncAnswer) -> set[int]:
    return {row.partition for row in answer.partitions}


def cursor_of(answer: SyncAnswer, **positions: int) -> str:
    partitions = {int(name[1:]): Position(offset, 0) for name, offset in positions.items()}
    topics = {"t": TopicPositions("id", partitions)}
    return encode_cursor(Cursor(answer.point, answer.generation, topics))


async def waiting_poll(world: World, **hello: Any) -> tuple[Consumer, asyncio.Task[SyncAnswer]]:
    """Return a member of a settled group, and its poll that waits for news."""
    consumer = world.join(**hello)
    await consumer.settled(0, 1)
    told = await consumer.poll()
    waiting = asyncio.create_task(consumer.sync(commit=False, watch=told.point, wait_ms=20_000))
    await asyncio.sleep(0)  # until it waits
    return consumer, waiting


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    running = asyncio.create_task(made.coordinator.run())
    await made.coordinator.ready.wait()
    try:
        yield made
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, TermEnded):
            await running


async def test_a_poll_commits_what_its_cursor_says_and_no_more(world: World) -> None:
    consumer = world.join()
    await consumer.settled(0, 1)
    await consumer.poll(p0=5, p1=7)
    assert world.offsets == {}
    lost = await consumer.sync()
    again = await consumer.sync()
    assert world.offsets == {P0: 5, P1: 7}
    assert lost.not_committed == again.not_committed == []

    beyond = await consumer.sync(cursor_of(again, p0=ENDS + 1))
    assert [row.partition for row in beyond.not_committed] == [0]
    assert world.offsets == {P0: 5, P1: 7}


async def test_a_poll_that_comes_late_takes_no_commit_back(world: World) -> None:
    consumer = world.join()
    await consumer.settled(0, 1)
    await consumer.poll(p0=5)
    late = consumer.cursor
    await consumer.poll(p0=9)
    await consumer.poll(p0=9)
    await consumer.sync(late)
    assert world.offsets == {P0: 9}


async def test_a_static_member_that_is_back_commits_like_a_new_one(world: World) -> None:
    consumer = world.join(instance_id="i")
    await consumer.settled(0, 1)
    for offset in (1, 2, 3):
        await consumer.poll(p0=offset)
    world.pass_time(2 * TIMEOUT_MS)

    await consumer.settled(0, 1)
    await consumer.poll(p0=8)
    await consumer.poll(p0=8)

    assert world.offsets == {P0: 8}


async def test_a_replaced_consumer_gets_no_answer_to_a_poll_any_more(world: World) -> None:
    instance = {"instance_id": "i", "instance_secret": "what the operator has given it"}
    replaced, waiting = await waiting_poll(world, **instance)
    successor = world.join(**instance)

    with pytest.raises(FencedInstance):
        await waiting
    with pytest.raises(FencedInstance):
        await replaced.sync()

    await wait_until(lambda: is_given(successor), "the successor gets the partitions")


async def is_given(consumer: Consumer) -> bool:
    consumer.world.pass_time(500)
    return owned(await consumer.poll()) == {0, 1}


async def test_a_commit_survives_that_the_member_is_given_more_meanwhile(world: World) -> None:
    stays, goes = world.join(protocol="cooperative"), world.join(protocol="cooperative")

    async def shared() -> bool:
        answers = [await stays.poll(), await goes.poll()]
        return sorted(map(owned, answers)) == [{0}, {1}]

    await wait_until(shared, "each owns a partition")
    (number,) = owned(await stays.poll())
    await stays.poll(**{f"p{number}": 5})
    generation = world.manager.group.generation
    world.ends_answer.clear()
    polling = asyncio.create_task(stays.sync())
    await world.asked_for_ends.wait()
    world.manager.members.on_leave(goes.name, goes.secret)
    world.manager.apply_effects()
    await until(lambda: stays.member.sent_generation > generation, "it is given both")

    world.ends_answer.set()
    answer = await polling

    assert owned(answer) == {0, 1}
    assert answer.not_committed == []
    assert world.offsets == {TopicPartition("t", number): 5}


async def test_joins_are_bounded_and_leave_nothing_behind(world: World) -> None:
    for _ in range(3):
        world.join()
    with pytest.raises(GroupFull):
        world.join()
    others = [f"other-{number}" for number in range(2)]
    for group in others:
        world.join(group)
    with pytest.raises(TooManyChannels):
        world.join("one-too-many")
    assert set(world.coordinator.groups) == {"g", *others}
    assert world.counted.total == 5

    world.pass_time(FIRST_POLL_MS)
    assert world.manager.group.members == {}
    assert world.counted.total == 2


async def test_the_owners_of_a_topic_fit_into_one_znode_whatever_their_names_are(
    world: World,
) -> None:
    """Up to group.max.size members share it, and its limit counts bytes."""
    consumer = world.join(client_id="😀" * 255)

    assert len(consumer.name.encode()) <= 40 + len("-m0")
    assert consumer.name.startswith("😀" * 10)


async def test_who_is_no_member_any_more_ends_its_waiting_poll(world: World) -> None:
    consumer, waiting = await waiting_poll(world)

    world.manager.members.evict(consumer.name, UnknownMember("evicted"))
    world.manager.apply_effects()

    with pytest.raises(UnknownMember):
        await waiting
    assert world.counted.total == 0


async def test_the_end_of_a_term_ends_a_waiting_poll(world: World) -> None:
    """The next poll finds the next coordinator; this one may be about to stop."""
    _, waiting = await waiting_poll(world)

    world.lost.set()

    async with asyncio.timeout(10):
        news = await waiting
    assert (news.superseded, news.changed) == (False, False)
    assert world.counted.total == 0


async def test_no_lease_of_a_member_is_extended_after_that_of_the_coordinator(
    world: World,
) -> None:
    """Rules R10 and R16: the next coordinator may be waiting for the end of the member's lease."""
    consumer = world.join()
    await consumer.settled(0, 1)
    await consumer.poll(p0=5)
    session = consumer.member.session
    assert session is not None
    before_ms = session.acknowledged_at_ms
    world.clock.advance(1_000)

    world.lease = False  # as after a pause; nothing has noticed it yet
    with pytest.raises(CoordinatorNotAvailable):
        await consumer.sync(commit=False)
    with pytest.raises(StoreOutcomeUnknown):
        await consumer.sync()  # ZooKeeper may have taken the commit

    assert session.acknowledged_at_ms == before_ms


async def test_a_second_poll_supersedes_the_one_that_waits(world: World) -> None:
    consumer, waiting = await waiting_poll(world)

    await consumer.sync()

    news = await waiting
    assert (news.superseded, news.changed, news.partitions) == (True, False, [])


async def test_strangers_learn_nothing_and_change_nothing(world: World) -> None:
    consumer = world.join()
    await consumer.settled(0, 1)
    await consumer.poll(p0=5)
    thief = Consumer(world, consumer.name, "x" * 43, consumer.cursor)

    with pytest.raises(WrongMemberSecret):
        await thief.sync()
    with pytest.raises(UnknownMember):
        await Consumer(world, "nobody", consumer.secret).sync()
    with pytest.raises(UnknownGroup):
        await world.members.sync("elsewhere", consumer.name, SyncRequest(consumer.secret))
    assert world.offsets == {}
