"""One consumer group: its members, what they own and may be consuming (seed 3; rule R16).

This is the state, and the frames that follow from it. What happens to members comes in
through `membership.py`, another assignment through `rebalance.py`; both leave what is
to be done in `outbox`.

What a group promises, and `held` of members and ghosts is there to keep: a partition
is started at a member only when nobody else can be consuming it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from leadline_client.channel import (
    Assignor,
    Error,
    Ping,
    Protocol,
    Start,
    StartOffset,
    Stop,
    Welcome,
    group_partitions,
)
from leadline_client.errors import LeadlineError, UnknownMember
from leadline_coordinator.domain.assignors.assign import split_among_threads
from leadline_coordinator.domain.effects import Close, Effect, Send
from leadline_coordinator.domain.member_session import MemberSession
from leadline_coordinator.domain.members import Limits, Member, PendingEviction
from leadline_coordinator.domain.records import Committed, GroupRecord, Partition
from leadline_coordinator.domain.states import GroupState, check_move

_NOTHING: frozenset[Partition] = frozenset()


class Group:
    """One group under one coordinator."""

    def __init__(
        self,
        name: str,
        epoch: int,
        limits: Limits,
        topics: Mapping[str, int],
        offsets: Mapping[Partition, Committed],
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.limits = limits
        self.topics = topics
        """All topics of the cluster, with their numbers of partitions."""
        self.offsets = offsets
        self.assignor: Assignor = "range"
        self.protocol: Protocol = "eager"
        self.generation = 0
        self.attempt = 0
        self.state = GroupState.EMPTY
        self.members: dict[str, Member] = {}
        self.ghosts: dict[str, PendingEviction] = {}
        self.owners: dict[Partition, str] = {}
        self.empty_since_wall_ms: int | None = None
        self.wants_rebalance = False
        self.why = ""
        """What called for the last rebalance: for people."""
        self.last_error: str | None = None
        self.unrecorded = False
        """Whether members or owners are not as they were recorded."""
        self.awaited: set[str] = set()
        """Members (and ghosts) whose answer, or end, a rebalance waits for."""
        self.keeps: Mapping[str, set[Partition]] | None = None
        """While members are being stopped: what each of them may keep."""
        self.outbox: list[Effect] = []
        self._by_connection: dict[int, str] = {}
        self._by_instance: dict[str, str] = {}

    # -- questions -------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether the group has members, or somebody may still be reading for it."""
        return bool(self.members or self.ghosts)

    def parts(self) -> dict[str, set[Partition]]:
        """Return what each member owns."""
        parts: dict[str, set[Partition]] = {name: set() for name in self.members}
        for partition, name in self.owners.items():
            if name in parts:
                parts[name].add(partition)
        return parts

    def holders(self) -> Iterator[tuple[str, set[Partition]]]:
        """Iterate over who may be consuming what: members, then ghosts."""
        for member in self.members.values():
            yield member.id, member.held
        for name, ghost in self.ghosts.items():
            yield name, ghost.held

    def member(self, name: str) -> Member:
        """Return a member.

        Raises:
            UnknownMember: it is none.

        """
        found = self.members.get(name)
        if found is None:
            raise UnknownMember(f"{name!r} is no member of group {self.name!r}")
        return found

    def member_at(self, connection: int) -> Member | None:
        """Return whose channel a connection is."""
        name = self._by_connection.get(connection)
        return self.members.get(name) if name is not None else None

    def member_of_instance(self, instance_id: str) -> Member | None:
        """Return the member of an instance id."""
        name = self._by_instance.get(instance_id)
        return self.members.get(name) if name is not None else None

    def record(self) -> GroupRecord:
        """Return what is to be recorded of the group."""
        return GroupRecord(
            name=self.name,
            assignor=self.assignor,
            protocol=self.protocol,
            generation=self.generation,
            members={name: member.subscription for name, member in self.members.items()},
            owners=dict(self.owners),
            empty_since_ms=self.empty_since_wall_ms,
        )

    # -- changes ---------------------------------------------------------------

    def request_rebalance(self, why: str) -> None:
        """Note that the assignment may have to change (the seed's compareAndSet of its bit)."""
        self.wants_rebalance = True
        self.why = why

    def move(self, state: GroupState) -> None:
        """Go on to another state.

        Raises:
            IllegalMove: it does not follow the present one.

        """
        check_move(self.state, state)
        self.state = state

    def admit(self, member: Member) -> None:
        """Make somebody a member."""
        self.members[member.id] = member
        self.remember_instance(member)

    def remember_instance(self, member: Member) -> None:
        """Have a static member found by its instance id."""
        if member.subscription.instance_id is not None:
            self._by_instance[member.subscription.instance_id] = member.id

    def forget_instance(self, member: Member) -> None:
        """Have a static member no longer found by its instance id."""
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._by_instance.get(instance_id) == member.id:
            del self._by_instance[instance_id]

    def expel(self, member: Member, why: LeadlineError | None, rest_ms: int) -> None:
        """Take a member out; what it holds is a ghost's until `rest_ms`."""
        if member.line is not None:
            self.disconnect(member.line.connection, why)
        self.forget_instance(member)
        del self.members[member.id]
        if member.held:
            self.ghosts[member.id] = PendingEviction(set(member.held), rest_ms)
        if not member.held or self.keeps is None:
            self.awaited.discard(member.id)
        self.unrecorded = True

    def release(self, member: Member, stopped: Iterable[Partition]) -> None:
        """Note that a member no longer consumes some partitions."""
        member.held.difference_update(tuple(stopped))
        if self.keeps is not None and not self.has_to_stop(member):
            self.awaited.discard(member.id)

    def has_to_stop(self, member: Member) -> bool:
        """Tell whether a member has yet to stop something, while members are being stopped."""
        keeps = self.keeps or {}
        return not member.held <= keeps.get(member.id, _NOTHING)

    # -- frames ----------------------------------------------------------------

    def connect(self, member: Member, connection: int, now_ms: int) -> None:
        """Give a member a channel, and welcome it."""
        member.line = MemberSession(connection, now_ms)
        member.connection = connection
        member.started = False
        member.told = member.confirmed = self.generation
        self._by_connection[connection] = member.id
        welcome = Welcome(
            member=member.id,
            coordinator_epoch=self.epoch,
            generation=self.generation,
            ping_interval_ms=self.limits.ping_interval_ms,
            stop_limit_ms=self.limits.stop_limit_ms,
        )
        self.outbox.append(Send(connection, welcome))

    def disconnect(self, connection: int, why: LeadlineError | None) -> None:
        """End a channel, saying why where there is something to say."""
        self.unlink(connection)
        if why is not None:
            self.outbox.append(Send(connection, Error.of(why)))
        self.outbox.append(Close(connection))

    def unlink(self, connection: int) -> None:
        """Note that a connection is nobody's channel any more."""
        self._by_connection.pop(connection, None)

    def send_ping(self, line: MemberSession, now_ms: int) -> None:
        """Ping a member, acknowledging what it has answered."""
        line.pinged_at_ms = now_ms
        ping = Ping(
            id=line.next_id(),
            coordinator_epoch=self.epoch,
            generation=self.generation,
            acknowledged=line.acknowledged,
        )
        self.outbox.append(Send(line.connection, ping))

    def send_stop(self, member: Member) -> None:
        """Stop what a member may not keep; without a channel there is nobody to be told."""
        keeps = self.keeps or {}
        if member.line is None:
            return
        given_up = frozenset(member.held - keeps.get(member.id, _NOTHING))
        member.outdate()  # whatever comes of this, it is to be told what it has then
        stop = Stop(
            id=member.line.stop(given_up),
            coordinator_epoch=self.epoch,
            generation=self.generation,
            attempt=self.attempt,
            partitions=group_partitions(given_up),
            reason=self.why,
        )
        self.outbox.append(Send(member.line.connection, stop))

    def send_start(self, member: Member, part: set[Partition]) -> None:
        """Start a member with its part, which nobody else holds."""
        if member.line is None:
            return
        new = part - member.line.given  # what it claims too: it may have given that up by now
        if not part <= member.held:
            member.confirmed = self.generation  # of before, it may have lost and regained it
        member.held = set(part)
        member.started = member.outdated = False
        member.told = self.generation
        start = Start(
            id=member.line.start(frozenset(part)),
            coordinator_epoch=self.epoch,
            generation=self.generation,
            attempt=self.attempt,
            assignment=group_partitions(part),
            offsets=tuple(self._offset(partition) for partition in sorted(new)),
            threads=self._threads(member, part),
        )
        self.outbox.append(Send(member.line.connection, start))

    def _offset(self, partition: Partition) -> StartOffset:
        committed = self.offsets.get(partition)
        if committed is None:
            return (*partition, None, None)
        return (*partition, committed.offset, committed.leader_epoch)

    def _threads(
        self, member: Member, part: set[Partition]
    ) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]:
        threads = member.subscription.threads
        if threads == 1:
            return ()
        split = split_among_threads(self.assignor, part, threads)
        return tuple(group_partitions(one) for one in split)
