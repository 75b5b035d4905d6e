"""A small world for the decisions about one group: consumers, a network, time, a successor.

Time goes by in steps; messages take a random time and may be lost with their
connection, in one direction or both. Consumers keep to the contract of
`leadline_client.channel` and to nothing else: they may be slow, stand still, be killed,
or never hear that they were cut off. After every step no partition may be consumed
by two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest

from leadline_client import channel
from leadline_client.channel import Error, Hello, Ping, Pong, Start, Started, Stop, Stopped, Welcome
from leadline_client.errors import (
    FencedInstance,
    InstanceInUse,
    LeadlineError,
    WrongMemberSecret,
)
from leadline_client.wire import GroupState, TopicPartition
from leadline_coordinator.domain.assignors.assign import assign
from leadline_coordinator.domain.commits import check_owned, committing_member
from leadline_coordinator.domain.effects import CloseMemberChannel, SendToMember
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupLimits, GroupMember
from leadline_coordinator.domain.membership import GroupMembership, restored
from leadline_coordinator.domain.rebalance import (
    AwaitAnswers,
    ComputeAssignment,
    JoinDelay,
    RebalanceStep,
    RebalanceSteps,
    WriteRecord,
    handle_rebalance_request,
)
from leadline_coordinator.domain.records import CommittedOffset, GroupRecord

STEP_MS = 10
LIMITS = GroupLimits(
    ping_interval_ms=50,
    stop_limit_ms=200,
    evict_limit_ms=300,
    reconnect_grace_ms=100,
    static_grace_ms=1_000,
    initial_delay_ms=20,
    answer_timeout_ms=100,
)


@dataclass
class Connection:
    """Two lanes of messages, each (when it arrives, text); a cut lane loses what is put in it."""

    number: int
    consumer: Consumer
    up: deque[tuple[int, str]] = field(default_factory=deque)
    down: deque[tuple[int, str]] = field(default_factory=deque)
    up_cut: bool = False
    down_cut: bool = False
    server_closed_at: int | None = None
    """When the coordinator learns of the end."""
    client_closed_at: int | None = None
    """When the consumer learns of it."""


class Consumer:
    """A consumer by the book."""

    def __init__(self, world: World, name: str, hello: dict[str, Any]) -> None:
        self.world = world
        self.name = name
        self.hello = hello
        self.alive = True
        self.frozen_until = 0
        self.member: str | None = None
        self.secret: str | None = None
        self.connection: Connection | None = None
        self.owned: set[tuple[str, int]] = set()
        self.started: set[tuple[str, int]] = set()
        self.seen = (-1, -1, -1)
        self.lease_until = 0
        self.sent_at: dict[int, int] = {}
        self.reconnect_at = 0
        self.answers_stops = self.answers_starts = True

    def consuming(self) -> set[tuple[str, int]]:
        """What it reads just now."""
        now = self.world.now
        if not self.alive or now < self.frozen_until or self.connection is None:
            return set()
        return self.started if now < self.lease_until else set()

    def act(self) -> None:
        """Do what there is to be done."""
        now = self.world.now
        if not self.alive or now < self.frozen_until:
            return
        if self.connection is None:
            if now >= self.reconnect_at:
                self._connect()
            return
        link = self.connection
        while link.down and link.down[0][0] <= now and self.connection is link:
            self._take(channel.decode(link.down.popleft()[1]), link)
        ended = link.client_closed_at is not None and now >= link.client_closed_at
        if self.connection is link and (ended or now >= self.lease_until + LIMITS.stop_limit_ms):
            self.lose()

    def lose(self) -> None:
        """Stop at once, and come back later."""
        link, self.connection = self.connection, None
        self.started = set()
        self.reconnect_at = self.world.now + self.world.random.randrange(0, 150)
        if link is not None and link.server_closed_at is None:
            link.server_closed_at = self.world.now + self.world.delay()

    def _connect(self) -> None:
        if self.world.coordinator is None:
            self.reconnect_at = self.world.now + 30
            return
        link = self.connection = self.world.connect(self)
        claims = channel.group_partitions(self.owned)
        hello = Hello(
            **self.hello,
            member=self.member,
            secret=self.secret,
            owned=claims,
            coordinator_epoch=self.seen[0],
            generation=self.seen[1],
        )
        self.sent_at = {0: self.world.now}
        self.lease_until = self.world.now + LIMITS.stop_limit_ms
        self.world.put(link, "up", hello)

    def _take(self, frame: channel.Frame, link: Connection) -> None:
        if isinstance(frame, Welcome):
            if frame.member != self.member:
                self.owned, self.secret = set(), frame.secret
            self.member = frame.member
            self.seen = max(self.seen, (frame.coordinator_epoch, frame.generation, 0))
            return
        if isinstance(frame, Error):
            self.lose()
            self.alive = frame.error_code != FencedInstance.code  # that one is final
            return
        assert isinstance(frame, Ping | Stop | Start)
        attempt = frame.attempt if isinstance(frame, Stop | Start) else 0
        numbers = (frame.coordinator_epoch, frame.generation, attempt)
        if frame.coordinator_epoch < self.seen[0]:
            return
        if isinstance(frame, Stop | Start):
            if numbers < self.seen:
                return
            self.seen = numbers
        self._answer(frame, link)

    def _answer(self, frame: Ping | Stop | Start, link: Connection) -> None:
        echo = {"id": frame.id, "coordinator_epoch": frame.coordinator_epoch}
        if isinstance(frame, Ping):
            sent = self.sent_at.get(frame.acknowledged)
            if sent is not None:
                self.lease_until = max(self.lease_until, sent + LIMITS.stop_limit_ms)
            self._send(link, Pong(**echo, generation=frame.generation))
            return
        echo |= {"generation": frame.generation, "attempt": frame.attempt}
        if isinstance(frame, Start):
            self.owned = set(channel.partition_pairs(frame.assignment))
            self.started = set(self.owned)
            if self.answers_starts:
                self._send(link, Started(**echo))
        elif self.answers_stops:
            given_up = set(channel.partition_pairs(frame.partitions))
            self.owned -= given_up
            self.started -= given_up
            self._send(link, Stopped(**echo, partitions=frame.partitions))

    def _send(self, link: Connection, frame: Pong | Stopped | Started) -> None:
        self.sent_at[frame.id] = self.world.now
        self.world.put(link, "up", frame)


class Coordinator:
    """One coordinator's group, and its procedure in the world's time."""

    def __init__(self, world: World, epoch: int, record: GroupRecord | None) -> None:
        self.world = world
        if record is None:
            self.group = Group("g", epoch, LIMITS, world.topics, world.offsets)
        else:
            self.group = restored(record, epoch, LIMITS, world.topics, world.offsets, world.now)
        self.members = GroupMembership(self.group)
        self.steps: RebalanceSteps | None = None
        self.step: RebalanceStep | None = None
        self.due = 0
        self.reply: Any = None

    def act(self) -> None:
        """Take in what has arrived, let time pass, go on with the rebalance."""
        for link in list(self.world.connections.values()):
            self._listen(link)
        self.members.on_tick(self.world.now)
        self._go_on()

    def _listen(self, link: Connection) -> None:
        now = self.world.now
        while link.up and link.up[0][0] <= now:
            frame = channel.decode(link.up.popleft()[1])
            if isinstance(frame, Hello):
                self._welcome(frame, link)
            elif isinstance(frame, Pong | Stopped | Started):
                self.members.on_answer(frame, link.number, now)
        if link.server_closed_at is not None and now >= link.server_closed_at:
            self.members.on_closed(link.number, now)
            self.world.connections.pop(link.number, None)

    def _welcome(self, hello: Hello, link: Connection) -> None:
        new_id = f"{link.consumer.name}.{self.group.epoch}.{link.number}"
        secret = f"only {new_id} knows this"
        try:
            self.members.on_hello(hello, link.number, new_id, self.world.now, new_secret=secret)
        except LeadlineError as error:
            self.world.put(link, "down", Error.of(error))

    def _go_on(self) -> None:
        self._flush()
        while True:
            if self.steps is None:
                if not self.group.rebalance_requested:
                    return
                self.steps = handle_rebalance_request(self.group, self.members)
                self.reply = None
            elif not self._is_due():
                return
            reply, self.reply = self.reply, None
            try:
                self.step = self.steps.send(reply)
            except StopIteration:
                self.steps = self.step = None
            else:
                self._begin(self.step)
            self._flush()

    def _begin(self, step: RebalanceStep) -> None:
        """Start waiting for what the procedure waits for."""
        now = self.world.now
        match step:
            case ComputeAssignment():
                self.due = now + self.world.delay()
                self.reply = assign(
                    step.assignor,
                    step.topics,
                    step.subscriptions,
                    step.previous,
                    threads=step.threads,
                    topic_threads=step.topic_threads,
                    instance_ids=step.instance_ids,
                ).assignment
            case WriteRecord():
                self.due = now + self.world.delay()
            case AwaitAnswers(within_ms):
                self.due = now + within_ms if within_ms is not None else 1 << 60
            case JoinDelay(ms):
                self.due = now + ms
            case _:
                self.due = now

    def _is_due(self) -> bool:
        is_due = self.world.now >= self.due
        if isinstance(self.step, AwaitAnswers):
            return is_due or not self.group.awaited
        if is_due and isinstance(self.step, WriteRecord):
            self.world.recorded = self.step.record
        return is_due

    def _flush(self) -> None:
        effects, self.group.effects = self.group.effects, []
        for effect in effects:
            link = None
            if isinstance(effect, SendToMember | CloseMemberChannel):
                link = self.world.connections.get(effect.connection)
            if link is None:
                continue
            if isinstance(effect, SendToMember):
                self.world.put(link, "down", effect.frame)
            else:
                self.world.end(link)


class World:
    """Everything, and the time."""

    def __init__(self, seed: int, topics: dict[str, int]) -> None:
        self.random = Random(seed)
        self.now = 1_000
        self.topics = topics
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self.recorded: GroupRecord | None = None
        self.connections: dict[int, Connection] = {}
        self.consumers: list[Consumer] = []
        self.epoch = 1
        self.coordinator: Coordinator | None = Coordinator(self, 1, None)
        self.successor_at = 0
        self._numbers = 0

    # -- the network -----------------------------------------------------------

    def delay(self) -> int:
        return self.random.choice((0, 0, 10, 30))

    def connect(self, consumer: Consumer) -> Connection:
        self._numbers += 1
        link = Connection(self._numbers, consumer)
        self.connections[link.number] = link
        return link

    def put(self, link: Connection, lane: str, frame: channel.Frame) -> None:
        """Send; what comes later never overtakes what went before."""
        if link.up_cut if lane == "up" else link.down_cut:
            return
        queue = link.up if lane == "up" else link.down
        arrives = max(self.now + self.delay(), queue[-1][0] if queue else 0)
        queue.append((arrives, channel.encode(frame)))

    def end(self, link: Connection) -> None:
        """End a connection from the coordinator's side."""
        self.connections.pop(link.number, None)
        if not link.down_cut:
            link.client_closed_at = max([self.now, *(at for at, _ in link.down)]) + self.delay()

    # -- time ------------------------------------------------------------------

    def run(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(max(1, ms // STEP_MS)):
            self.now += STEP_MS
            if self.coordinator is None and self.now >= self.successor_at:
                self.coordinator = Coordinator(self, self.epoch, self.recorded)
            if self.coordinator is not None:
                self.coordinator.act()
            for consumer in self.consumers:
                consumer.act()
            self.check()

    def check(self) -> None:
        """No partition is consumed by two; and who does not consume it cannot commit it."""
        readers: dict[tuple[str, int], str] = {}
        for consumer in self.consumers:
            for partition in consumer.consuming():
                other = readers.setdefault(partition, consumer.name)
                assert other == consumer.name, (
                    f"at {self.now} both {other} and {consumer.name} consume {partition}"
                )
        for consumer in self.consumers:
            epoch, generation, _ = consumer.seen
            for partition, reader in readers.items():
                assert reader == consumer.name or not self.commit(
                    consumer, TopicPartition(*partition), generation, epoch
                ), f"at {self.now} {consumer.name} commits {partition}, which {reader} consumes"

    # -- what may happen -------------------------------------------------------

    def join(self, **hello: Any) -> Consumer:
        consumer = Consumer(self, f"c{len(self.consumers)}", hello)
        self.consumers.append(consumer)
        return consumer

    def kill(self, consumer: Consumer, *, silently: bool = False) -> None:
        """Kill a process: the kernel ends its connection, or its machine is gone with it."""
        consumer.alive = False
        if consumer.connection is not None and not silently:
            consumer.connection.server_closed_at = self.now + self.delay()

    def leave(self, consumer: Consumer) -> None:
        """Stop, then say so."""
        consumer.alive = False
        if self.coordinator is not None and consumer.member in self.coordinator.group.members:
            self.coordinator.members.on_leave(consumer.member, consumer.secret)
        elif consumer.connection is not None:
            consumer.connection.server_closed_at = self.now + self.delay()

    def fail_over(self, gap_ms: int) -> None:
        """Lose the coordinator; its connections end for the consumers, now or later."""
        for link in self.connections.values():
            link.client_closed_at = self.now + self.random.choice((0, 30, 400))
        self.connections = {}
        self.coordinator = None
        self.epoch += 1
        self.successor_at = self.now + gap_ms

    def commit(
        self, consumer: Consumer, partition: TopicPartition, generation: int, epoch: int
    ) -> bool:
        """Try a commit; return whether it was accepted."""
        if self.coordinator is None:
            return False
        try:
            group = self.coordinator.group
            member = committing_member(group, consumer.member, generation, epoch, consumer.secret)
            check_owned(member, partition)
        except LeadlineError:
            return False
        return True

    def intrude(self) -> None:
        """Act as each member, knowing everything but its secrets: nothing may change."""
        if self.coordinator is None:
            return
        group, members = self.coordinator.group, self.coordinator.members
        before = repr(vars(group))
        for member in list(group.members.values()):
            generation = member.sent_generation
            for secret in (None, "", member.id, member.credentials.secret_hash, "\ud800"):
                hello = Hello(member=member.id, secret=secret, topics=("t",), owned=(("t", (0,)),))
                _refused(partial(self._hello, members, hello))
                _refused(partial(members.on_leave, member.id, secret))
                by = (member.id, generation, group.epoch, secret)
                _refused(partial(committing_member, group, *by))
            self._intrude_instance(members, member)
        assert repr(vars(group)) == before, "a stranger changed the group"

    def _intrude_instance(self, members: GroupMembership, member: GroupMember) -> None:
        """Take the place of a static member; of one without a secret, only while it may live."""
        instance_id = member.subscription.instance_id
        is_gone = member.session is None and self.now >= member.stopped_at_ms
        if instance_id is None or (is_gone and not member.credentials.instance_hash):
            return
        for secret in (None, "a guess of sixteen characters", member.credentials.instance_hash):
            hello = Hello(instance_id=instance_id, instance_secret=secret or None, topics=("t",))
            _refused(partial(self._hello, members, hello))

    def _hello(self, members: GroupMembership, hello: Hello) -> None:
        self._numbers += 1
        members.on_hello(hello, self._numbers, "stranger", self.now, new_secret=str(self._numbers))

    def heal(self) -> None:
        """End every fault, and let everybody find together."""
        for consumer in self.consumers:
            consumer.frozen_until = 0
            consumer.answers_stops = consumer.answers_starts = True
            link = consumer.connection
            if link is not None and (link.up_cut or link.down_cut):
                consumer.lose()
        self.run(4_000)

    def living(self) -> Iterator[Consumer]:
        return (consumer for consumer in self.consumers if consumer.alive)

    def settled(self) -> None:
        """Everything that is subscribed to is consumed by exactly one, and nothing is left over."""
        assert self.coordinator is not None
        group = self.coordinator.group
        living = list(self.living())
        assert not group.pending_evictions
        assert group.state is (GroupState.STABLE if living else GroupState.EMPTY), group.state
        assert {consumer.member for consumer in living} == set(group.members)
        readers = [partition for consumer in living for partition in consumer.consuming()]
        wanted = {(topic, n) for topic, count in self.topics.items() for n in range(count)}
        assert sorted(readers) == sorted(wanted if living else ())


def _refused(request: Callable[[], object]) -> None:
    with pytest.raises((WrongMemberSecret, InstanceInUse)):
        request()
