"""One consumer group: its state, its members, and the partitions they own and may be consuming.

Consumer Coordinator design; rule R16. This module holds the state and the frames that
follow from it. Events of members arrive through `membership.py`, new assignments through
`rebalance.py`. Both leave what must be done in `effects`.

Invariant, kept through `held` of members and pending evictions: a partition is started at
a member only when no other consumer can be consuming it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from leadline_client.channel import (
    Assignor,
    Error,
    Partitions,
    Ping,
    Protocol,
    Start,
    StartOffset,
    Stop,
    Welcome,
    group_partitions,
)
from leadline_client.errors import FencedInstance, LeadlineError, UnknownMember
from leadline_client.wire import GroupState, TopicPartition
from leadline_coordinator.domain.assignors.assign import split_among_threads
from leadline_coordinator.domain.credentials import check_member_secret
from leadline_coordinator.domain.effects import CloseMemberChannel, GroupEffect, SendToMember
from leadline_coordinator.domain.members import (
    GroupLimits,
    GroupMember,
    MemberSession,
    PendingEviction,
    PolledSession,
)
from leadline_coordinator.domain.records import CommittedOffset, GroupRecord

_NOTHING: Final[frozenset[TopicPartition]] = frozenset()

_SETTLED: Final = {GroupState.STABLE, GroupState.EMPTY}
_REBALANCING: Final = {GroupState.STOPPING, GroupState.RECORDING, GroupState.STARTING}

TRANSITIONS: Final[dict[GroupState, set[GroupState]]] = {
    GroupState.EMPTY: {GroupState.JOINING, GroupState.RECORDING},
    GroupState.RECOVERING: _REBALANCING | _SETTLED,
    GroupState.JOINING: _REBALANCING | _SETTLED,
    GroupState.STOPPING: {GroupState.RECORDING, GroupState.STARTING} | _SETTLED,
    GroupState.RECORDING: {GroupState.STOPPING, GroupState.STARTING} | _SETTLED,
    GroupState.STARTING: _REBALANCING | _SETTLED | {GroupState.FAILED},
    GroupState.STABLE: _REBALANCING | _SETTLED,
    GroupState.FAILED: _REBALANCING | _SETTLED,
}
"""`recovering`: loaded from ZooKeeper, waiting for its members. `joining`: was empty, waiting for
further members.

A rebalance passes through `stopping`, `recording` and `starting`, without those that it does
not need. It ends `stable` or `empty`, or `failed` if members did not answer.
"""


class IllegalGroupTransition(Exception):
    """A defect of the decisions: the group cannot enter this state from its present one."""


def check_transition(before: GroupState, after: GroupState) -> None:
    """Refuse an illegal transition; staying in a state is none.

    Raises:
        IllegalGroupTransition: `after` does not follow `before`.

    """
    if after is not before and after not in TRANSITIONS[before]:
        raise IllegalGroupTransition(f"a group that is {before} cannot become {after}")


@dataclass(eq=False)
class Group:
    """One group under one coordinator."""

    name: str
    epoch: int
    limits: GroupLimits
    topics: Mapping[str, int]
    """The number of partitions of every topic in the cluster."""
    offsets: Mapping[TopicPartition, CommittedOffset]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The id of every topic in the cluster."""
    assignor: Assignor = "range"
    protocol: Protocol = "eager"
    generation: int = 0
    attempt: int = 0
    state: GroupState = GroupState.EMPTY
    members: dict[str, GroupMember] = field(default_factory=dict)
    pending_evictions: dict[str, PendingEviction] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    """The member that owns each partition. It is replaced as a whole, or changed by `hand_over`."""
    empty_since_wall_ms: int | None = None
    rebalance_requested: bool = False
    rebalance_reason: str = ""
    """The reason for the last rebalance, for operators."""
    last_error: str | None = None
    unrecorded: bool = False
    """Whether members or owners differ from what is recorded."""
    awaited: set[str] = field(default_factory=set)
    """Members and pending evictions whose answer or end a rebalance waits for."""
    retained: Mapping[str, set[TopicPartition]] | None = None
    """While members are being stopped: what each of them may keep."""
    added_again: set[TopicPartition] = field(default_factory=set)
    """Partitions that were removed and added again since their owners were started."""
    effects: list[GroupEffect] = field(default_factory=list)
    _by_connection: dict[int, str] = field(default_factory=dict)
    _by_instance: dict[str, str] = field(default_factory=dict)
    _owned: dict[str, set[TopicPartition]] = field(default_factory=dict)
    """What each member owns, according to `_indexed`."""
    _indexed: dict[TopicPartition, str] | None = None

    # -- queries ---------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether the group has members, or former members that may still be consuming."""
        return bool(self.members or self.pending_evictions)

    def assignment(self) -> dict[str, set[TopicPartition]]:
        """Return what each member owns."""
        return {name: self.owned_by(name) for name in self.members}

    def owned_by(self, name: str) -> set[TopicPartition]:
        """Return what a member owns, without a look at what others own.

        After an election all members return at once, and each of them asks.
        """
        return set(self._by_owner().get(name, _NOTHING))

    def _by_owner(self) -> dict[str, set[TopicPartition]]:
        if self._indexed is not self.owners:
            owned: dict[str, set[TopicPartition]] = {}
            for topic_partition, name in self.owners.items():
                owned.setdefault(name, set()).add(topic_partition)
            self._owned, self._indexed = owned, self.owners
        return self._owned

    def holders(self) -> Iterator[tuple[str, set[TopicPartition]]]:
        """Iterate over what each member, then each pending eviction, may be consuming."""
        for member in self.members.values():
            yield member.id, member.held
        for name, pending in self.pending_evictions.items():
            yield name, pending.held

    def member(self, name: str) -> GroupMember:
        """Return a member.

        Raises:
            UnknownMember: there is no such member.

        """
        found = self.members.get(name)
        if found is None:
            raise UnknownMember(f"{name!r} is not a member of group {self.name!r}")
        return found

    def proven_member(self, name: str, secret: str | None) -> GroupMember:
        """Return the member in whose name a request comes, with its secret.

        Raises:
            UnknownMember: there is no such member: it was evicted, or its time ran out.
            FencedInstance: another member has taken its place.
            WrongMemberSecret: the secret is missing or wrong.

        """
        self.check_not_replaced(name)
        member = self.member(name)
        check_member_secret(member, secret)
        return member

    def check_not_replaced(self, name: str) -> None:
        """Refuse a former member whose place another one has: they would take it from each other.

        Raises:
            FencedInstance: another member has taken its place.

        """
        if name in self.members:
            return
        statics = map(self.members.__getitem__, self._by_instance.values())
        if any(name in one.credentials.replaced for one in statics):
            raise FencedInstance(f"another consumer has replaced {name!r} with its instance id")

    def member_at(self, connection: int) -> GroupMember | None:
        """Return the member whose channel a connection is."""
        name = self._by_connection.get(connection)
        return self.members.get(name) if name is not None else None

    def member_of_instance(self, instance_id: str | None) -> GroupMember | None:
        """Return the member with an instance id."""
        name = self._by_instance.get(instance_id) if instance_id is not None else None
        return self.members.get(name) if name is not None else None

    def record(self) -> GroupRecord:
        """Return the record of the group as it is now."""
        return GroupRecord(
            name=self.name,
            assignor=self.assignor,
            protocol=self.protocol,
            generation=self.generation,
            members={name: member.subscription for name, member in self.members.items()},
            owners=dict(self.owners),
            empty_since_ms=self.empty_since_wall_ms,
            credentials={name: member.credentials for name, member in self.members.items()},
        )

    # -- changes ---------------------------------------------------------------

    def note_added_again(self, gone: Mapping[str, int]) -> None:
        """Note owned partitions that are other ones by now: of each topic, from a number on."""
        self.added_again.update(
            one for one in self.owners if one.partition >= gone.get(one.topic, one.partition + 1)
        )

    def request_rebalance(self, reason: str) -> None:
        """Request a rebalance (in the Consumer Coordinator design: compareAndSet of a bit)."""
        self.rebalance_requested = True
        self.rebalance_reason = reason

    def transition(self, state: GroupState) -> None:
        """Enter another state.

        Raises:
            IllegalGroupTransition: it does not follow the present one.

        """
        check_transition(self.state, state)
        self.state = state

    def add(self, member: GroupMember) -> None:
        """Add a member."""
        self.members[member.id] = member
        self.index_instance(member)

    def index_instance(self, member: GroupMember) -> None:
        """Let `member_of_instance` find a static member."""
        if member.subscription.instance_id is not None:
            self._by_instance[member.subscription.instance_id] = member.id

    def unindex_instance(self, member: GroupMember) -> None:
        """Undo `index_instance`."""
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._by_instance.get(instance_id) == member.id:
            del self._by_instance[instance_id]

    def hand_over(self, former: str, successor: str) -> None:
        """Give what a former member owned to the new member that takes its place."""
        owned = self._by_owner()
        owned[successor] = owned.pop(former, set())
        self.owners.update(dict.fromkeys(owned[successor], successor))

    def remove(self, member: GroupMember, error: LeadlineError | None, stopped_ms: int) -> None:
        """Remove a member; what it holds stays held until `stopped_ms`."""
        if member.session is not None:
            self.disconnect(member.session.connection, error)
        self.unindex_instance(member)
        del self.members[member.id]
        if member.held:
            self.pending_evictions[member.id] = PendingEviction(set(member.held), stopped_ms)
        if not member.held or self.retained is None:
            self.awaited.discard(member.id)
        self.unrecorded = True

    def release(self, member: GroupMember, stopped: Iterable[TopicPartition]) -> None:
        """Record that a member no longer consumes some partitions."""
        member.held.difference_update(tuple(stopped))
        if self.retained is not None and not self.has_to_stop(member):
            self.awaited.discard(member.id)

    def has_to_stop(self, member: GroupMember) -> bool:
        """Tell whether a member has yet to stop something, while members are being stopped."""
        retained = self.retained or {}
        return not member.held <= retained.get(member.id, _NOTHING)

    # -- frames ----------------------------------------------------------------

    def connect(
        self, member: GroupMember, connection: int, now_ms: int, secret: str | None
    ) -> None:
        """Give a member a channel, and send its Welcome, with its secret if it is new."""
        member.session = _new_session(member, connection, now_ms)
        member.connection = connection
        member.started = False
        member.sent_generation = member.confirmed_generation = self.generation
        self._by_connection[connection] = member.id
        welcome = Welcome(
            member=member.id,
            coordinator_epoch=self.epoch,
            generation=self.generation,
            ping_interval_ms=self.limits.ping_interval_ms,
            stop_limit_ms=self.limits.stop_limit_ms,
            secret=secret,
        )
        self.effects.append(SendToMember(connection, welcome))

    def disconnect(self, connection: int, error: LeadlineError | None) -> None:
        """Close a channel, after sending `error` if there is one."""
        self.unlink(connection)
        if error is not None:
            self.effects.append(SendToMember(connection, Error.of(error)))
        self.effects.append(CloseMemberChannel(connection))

    def unlink(self, connection: int) -> None:
        """Record that a connection is no longer a member's channel."""
        self._by_connection.pop(connection, None)

    def send_ping(self, session: MemberSession, now_ms: int) -> None:
        """Ping a member, acknowledging its answers."""
        session.pinged_at_ms = now_ms
        ping = Ping(
            id=session.next_id(),
            coordinator_epoch=self.epoch,
            generation=self.generation,
            acknowledged=session.acknowledged,
        )
        self.effects.append(SendToMember(session.connection, ping))

    def send_stop(self, member: GroupMember) -> None:
        """Stop what a connected member may not keep."""
        retained = self.retained or {}
        if member.session is None:
            return
        revoked = frozenset(member.held - retained.get(member.id, _NOTHING))
        member.outdate()  # whatever the outcome, it needs a Start that says what it has then
        stop = Stop(
            id=member.session.stop(revoked),
            coordinator_epoch=self.epoch,
            generation=self.generation,
            attempt=self.attempt,
            partitions=group_partitions(revoked),
            reason=self.rebalance_reason,
        )
        self.effects.append(SendToMember(member.session.connection, stop))

    def send_start(self, member: GroupMember, assigned: set[TopicPartition]) -> None:
        """Start a connected member with its assignment, which nobody else holds."""
        if member.session is None:
            return
        # Offsets even of what it claims: it may have given that up in the meantime.
        new = assigned - member.session.given
        if not assigned <= member.held or not assigned.isdisjoint(self.added_again):
            # Partitions that it lost and regained must not be committed under the old generation.
            member.confirmed_generation = self.generation
        self.added_again -= assigned
        member.held = set(assigned)
        member.started = member.outdated = False
        member.sent_generation = self.generation
        start = Start(
            id=member.session.start(frozenset(assigned)),
            coordinator_epoch=self.epoch,
            generation=self.generation,
            attempt=self.attempt,
            assignment=group_partitions(assigned),
            offsets=tuple(self.start_offset(topic_partition) for topic_partition in sorted(new)),
            threads=self._threads(member, assigned),
            topic_ids=self._ids_of({topic for topic, _ in assigned}),
        )
        self.effects.append(SendToMember(member.session.connection, start))
        if isinstance(member.session, PolledSession):
            # Its next poll tells it, however late that comes: nobody has to wait for it.
            member.started = True
            self.awaited.discard(member.id)

    def start_offset(self, topic_partition: TopicPartition) -> StartOffset:
        """Return where a partition begins that is started now: at the committed offset."""
        committed = self.offsets.get(topic_partition)
        known = self.topic_ids.get(topic_partition.topic, "")
        if committed is None or (known and committed.topic_id not in ("", known)):
            return (*topic_partition, None, None)
        return (*topic_partition, committed.offset, committed.leader_epoch)

    def _ids_of(self, topics: Iterable[str]) -> tuple[tuple[str, str], ...]:
        return tuple((topic, self.topic_ids.get(topic, "")) for topic in sorted(topics))

    def _threads(
        self, member: GroupMember, assigned: set[TopicPartition]
    ) -> tuple[Partitions, ...]:
        asked = member.subscription
        if asked.thread_count == 1:
            return ()
        counts = {topic: asked.threads for topic, _ in assigned} | dict(asked.topic_threads)
        split = split_among_threads(self.assignor, assigned, asked.thread_count, counts)
        return tuple(map(group_partitions, split))


def _new_session(member: GroupMember, connection: int, now_ms: int) -> MemberSession:
    timeout_ms = member.subscription.session_timeout_ms
    if timeout_ms is None:
        return MemberSession(connection, acknowledged_at_ms=now_ms, pinged_at_ms=now_ms)
    return PolledSession(connection, now_ms, now_ms, timeout_ms=timeout_ms)
