"""What happens to the members of a group: they join, answer, fall silent and leave (rule R16).

Consumer Coordinator design. Every event is a call with its time in monotonic ms. An
event that may call for another assignment requests a rebalance of the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from leadline_client.channel import Hello, Pong, Started, Stopped, partition_pairs
from leadline_client.errors import (
    FencedInstance,
    GroupFull,
    InstanceInUse,
    InvalidRequest,
    InvalidSubscription,
    LeadlineError,
    RebalanceInProgress,
    UnknownMember,
)
from leadline_client.wire import GroupState, TopicPartition
from leadline_coordinator.domain.credentials import (
    check_instance_secret,
    check_member_secret,
    hash_of,
)
from leadline_coordinator.domain.effects import MemberRemoved
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import (
    GroupLimits,
    GroupMember,
    MemberSession,
    PolledSession,
)
from leadline_coordinator.domain.records import (
    CommittedOffset,
    GroupRecord,
    MemberCredentials,
    MemberSubscription,
)
from leadline_coordinator.domain.subscriptions import (
    PollingTerms,
    check_fits,
    subscription_of,
)

_MOST_REPLACED: Final = 8
"""How many former members of its instance a static member remembers."""


def restored(
    record: GroupRecord,
    epoch: int,
    limits: GroupLimits,
    topics: Mapping[str, int],
    offsets: Mapping[TopicPartition, CommittedOffset],
    now_ms: int,
) -> Group:
    """Return a group as the last coordinator recorded it; its members are expected back.

    A member that does not return has certainly stopped once the evict limit has passed:
    the last coordinator acknowledged nothing after it had lost leadership (R10).
    """
    group = Group(record.name, epoch, limits, topics, offsets)
    group.assignor, group.protocol = record.assignor, record.protocol
    group.generation = record.generation
    group.empty_since_wall_ms = record.empty_since_ms
    group.owners = {owned: name for owned, name in record.owners.items() if name in record.members}
    for name, subscription in record.members.items():
        grace_ms = limits.static_grace_ms if subscription.instance_id is not None else 0
        member = GroupMember(name, subscription)
        member.stopped_at_ms = now_ms + member.evict_limit_ms(limits)
        member.remove_at_ms = max(member.stopped_at_ms, now_ms + grace_ms)
        member.credentials = record.credentials.get(name, member.credentials)
        group.add(member)
    for topic_partition, name in group.owners.items():
        group.members[name].held.add(topic_partition)
    if group.members:
        group.state = GroupState.RECOVERING
        group.request_rebalance("a new coordinator was elected")
    return group


class GroupMembership:
    """Applies the events of members to one group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._limits = group.limits
        self._last_tick_ms: int | None = None

    def on_hello(
        self,
        hello: Hello,
        connection: int,
        new_id: str,
        now_ms: int,
        *,
        new_secret: str,
        polling: PollingTerms | None = None,
    ) -> GroupMember:
        """Let a consumer join or rejoin; a new member gets the id `new_id` and `new_secret`.

        One that polls over HTTP has `polling` terms.

        Raises:
            WrongMemberSecret: it names a member or a static member that it is not.
            FencedInstance: another one has taken its place.
            InstanceInUse: the static member that it would replace may still be consuming.
            InvalidRequest: the consumer has opened another channel since this one.
            InvalidSubscription: it is not valid, or does not fit the other members.
            RebalanceInProgress: it does not fit members that are disconnected and may soon be gone.
            GroupFull: the group has its maximum of members.

        """
        group = self.group
        if not group.is_active:
            self._last_tick_ms = None  # an inactive group gets no ticks: that was no pause
        subscription = subscription_of(hello, polling)
        known = self._claimed(hello)
        replaced = group.member_of_instance(subscription.instance_id)
        if replaced is known:
            replaced = None
        if any(one is not None and one.connection > connection for one in (known, replaced)):
            # It was delayed for longer than its sender would wait, and is out of date.
            raise InvalidRequest("hello: this member has a later channel")
        if replaced is not None:
            _check_replaceable(replaced, hello, now_ms)
        self._check_fits(hello, known or replaced)
        if known is None and replaced is None and len(group.members) >= self._limits.max_size:
            raise GroupFull(f"group {group.name!r} has {len(group.members)} members already")
        group.assignor, group.protocol = hello.assignor, hello.protocol
        instance_hash = hash_of(hello.instance_secret)
        if known is None:
            former = () if replaced is None or replaced.id == hello.member else _former(replaced)
            credentials = MemberCredentials(hash_of(new_secret), instance_hash, former)
            new = GroupMember(new_id, subscription, credentials=credentials)
            member = self._join(new, replaced)
        else:
            credentials = replace(known.credentials, instance_hash=instance_hash)
            member = self._rejoin(known, hello, subscription, credentials)
        group.connect(member, connection, now_ms, new_secret if known is None else None)
        self._catch_up(member, is_back=known is not None)
        return member

    def on_closed(self, connection: int, now_ms: int) -> None:
        """Apply the end of a channel: the consumer stops, and may reconnect."""
        member = self.group.member_at(connection)
        if member is not None:
            self._disconnected(member, now_ms, now_ms + self._limits.reconnect_grace_ms)

    def on_answer(self, frame: Pong | Stopped | Started, connection: int, now_ms: int) -> None:
        """Apply an answer; one to an older coordinator or over an older channel changes nothing."""
        group = self.group
        member = group.member_at(connection)
        if member is None or member.session is None or frame.coordinator_epoch != group.epoch:
            return
        match frame:
            case Pong():
                member.session.on_answer(frame.id, now_ms)
            case Stopped():
                group.release(member, member.session.on_stopped(frame.id, now_ms))
            case Started():
                if member.session.on_started(frame.id, now_ms):
                    member.started = not member.outdated
                    member.confirmed_generation = member.sent_generation
                    if group.state is GroupState.STARTING:
                        group.awaited.discard(member.id)

    def on_leave(self, name: str, secret: str | None) -> None:
        """Remove a member that has stopped and leaves.

        Raises:
            UnknownMember: there is no such member.
            FencedInstance: another one has taken its place.
            WrongMemberSecret: the caller is not the member.

        """
        member = self.group.proven_member(name, secret)
        member.held.clear()
        self._remove(member, "left", None, 0)

    def evict(self, name: str, error: LeadlineError, reason: str = "evicted") -> None:
        """Remove a member; its partitions are free once it has certainly stopped.

        Raises:
            UnknownMember: there is no such member.

        """
        member = self.group.member(name)
        self._remove(member, reason, error, member.stopped_by_ms(self._limits))

    def on_tick(self, now_ms: int) -> None:
        """Ping members, evict those silent or disconnected for too long, release what stopped."""
        group = self.group
        self._make_up_for_a_pause(now_ms)
        for member in list(group.members.values()):
            if member.session is None:
                self._check_disconnected(member, now_ms)
            elif now_ms >= member.stopped_by_ms(self._limits):
                self._on_silent(member, now_ms)
            elif self._is_ping_due(member.session, now_ms):
                group.send_ping(member.session, now_ms)
        for name, pending in list(group.pending_evictions.items()):
            if now_ms >= pending.release_at_ms:
                del group.pending_evictions[name]
                group.awaited.discard(name)

    def _is_ping_due(self, session: MemberSession, now_ms: int) -> bool:
        if isinstance(session, PolledSession):
            return False  # it says by itself that it is alive
        return now_ms - session.pinged_at_ms >= self._limits.ping_interval_ms

    def on_return(self, member: GroupMember, connection: int, generation: int, now_ms: int) -> None:
        """Give a member that polls a new session; it has consumed under this generation.

        What it owned then, and nobody else since, it continues where it was. Nothing that it may
        be consuming is given to others because of this: the poll may be a delayed one.
        """
        group = self.group
        group.connect(member, connection, now_ms, None)
        if isinstance(member.session, PolledSession) and generation == group.generation:
            member.session.claimed = frozenset(member.held)
        group.request_rebalance(f"{member.id} is back")
        self._catch_up(member, is_back=True)

    # -- joining ---------------------------------------------------------------

    def _claimed(self, hello: Hello) -> GroupMember | None:
        """Return the member that a consumer proves to be; None if it joins as a new one.

        Raises:
            WrongMemberSecret: it is not the member that it names.
            FencedInstance: another one has taken its place.

        """
        if hello.member is None:
            return None
        self.group.check_not_replaced(hello.member)
        claimed = self.group.members.get(hello.member)
        if claimed is None or not claimed.credentials.secret_hash:
            return None
        check_member_secret(claimed, hello.secret)
        return claimed

    def _check_fits(self, hello: Hello, itself: GroupMember | None) -> None:
        """Refuse a consumer that does not fit the members other than `itself`."""
        group = self.group
        if len(group.members) == (itself is not None):
            return
        try:
            check_fits(hello, group.assignor, group.protocol)
        except InvalidSubscription as refusal:
            others = (one for one in group.members.values() if one is not itself)
            if any(one.session is not None for one in others):
                raise
            reason = f"{refusal.message}. They are disconnected and may be removed soon: try again"
            raise RebalanceInProgress(reason) from None

    def _join(self, member: GroupMember, replaced: GroupMember | None) -> GroupMember:
        group = self.group
        if replaced is not None:
            fenced = FencedInstance("another consumer with this instance id has joined")
            self._remove(replaced, "fenced", fenced, replaced.stopped_by_ms(self._limits))
            group.hand_over(replaced.id, member.id)
        group.add(member)
        group.unrecorded = True
        group.empty_since_wall_ms = None
        group.request_rebalance(f"{member.id} has joined")
        return member

    def _rejoin(
        self,
        member: GroupMember,
        hello: Hello,
        subscription: MemberSubscription,
        credentials: MemberCredentials,
    ) -> GroupMember:
        """Reconnect a member on a new channel; it has stopped, and claims what it would keep."""
        group = self.group
        if member.session is not None:
            group.disconnect(member.session.connection, None)
        member.held &= set(partition_pairs(hello.owned))
        if (subscription, credentials) != (member.subscription, member.credentials):
            member.credentials = credentials
            group.unindex_instance(member)
            member.subscription = subscription
            group.index_instance(member)
            group.unrecorded = True
        group.request_rebalance(f"{member.id} is back")
        return member

    def _catch_up(self, member: GroupMember, *, is_back: bool) -> None:
        """Send a connected member what need not, or must not, wait for the next rebalance."""
        group = self.group
        if group.state is GroupState.RECOVERING and is_back:
            # The recorded assignment belongs to this member, whoever else returns, unless it
            # replaced a member that may still be consuming.
            group.awaited.discard(member.id)
            owned = group.owned_by(member.id)
            if all(owned.isdisjoint(other.held) for other in group.pending_evictions.values()):
                group.send_start(member, owned)
        elif group.retained is not None and member.id in group.awaited:
            if group.has_to_stop(member):
                group.send_stop(member)
            else:
                group.awaited.discard(member.id)

    # -- leaving ---------------------------------------------------------------

    def _disconnected(self, member: GroupMember, now_ms: int, stopped_ms: int) -> None:
        """Record that a member has no channel, and stops by `stopped_ms` or earlier."""
        group = self.group
        if member.session is None:
            return
        member.stopped_at_ms = min(stopped_ms, member.stopped_by_ms(self._limits))
        is_static = member.subscription.instance_id is not None
        grace_ms = self._limits.static_grace_ms if is_static else self._limits.reconnect_grace_ms
        member.remove_at_ms = now_ms + grace_ms
        group.unlink(member.session.connection)
        member.session = None
        if group.state is GroupState.STARTING:
            group.awaited.discard(member.id)

    def _check_disconnected(self, member: GroupMember, now_ms: int) -> None:
        group = self.group
        if now_ms >= member.stopped_at_ms:
            group.release(member, member.held)
            if group.state is GroupState.RECOVERING:
                group.awaited.discard(member.id)
        if now_ms >= member.remove_at_ms:
            self._remove(member, "lost", None, member.stopped_at_ms)

    def _on_silent(self, member: GroupMember, now_ms: int) -> None:
        """Evict a member that has certainly stopped by itself; disconnect a static one instead."""
        error = UnknownMember("no answer came in time: join again")
        if member.subscription.instance_id is None or member.session is None:
            member.held.clear()
            self._remove(member, "silent", error, now_ms)
            return
        self.group.disconnect(member.session.connection, error)
        self._disconnected(member, now_ms, now_ms)

    def _remove(
        self, member: GroupMember, reason: str, error: LeadlineError | None, stopped_ms: int
    ) -> None:
        self.group.remove(member, error, stopped_ms)
        self.group.effects.append(MemberRemoved(member.id, reason))
        self.group.request_rebalance(f"{member.id} is gone: {reason}")

    def _make_up_for_a_pause(self, now_ms: int) -> None:
        """Extend deadlines by the time in which this process was suspended and heard nothing."""
        before, self._last_tick_ms = self._last_tick_ms, now_ms
        pause_ms = 0 if before is None else now_ms - before
        if pause_ms <= self._limits.ping_interval_ms:
            return
        for member in self.group.members.values():
            if member.session is not None:
                member.session.acknowledged_at_ms += pause_ms
            else:
                member.remove_at_ms += pause_ms


def _former(replaced: GroupMember) -> tuple[str, ...]:
    """Return the members whose place is taken with that of one, the latest first."""
    return (replaced.id, *replaced.credentials.replaced)[:_MOST_REPLACED]


def _check_replaceable(replaced: GroupMember, hello: Hello, now_ms: int) -> None:
    """Refuse to replace a static member that is not gone, without its instance secret.

    Without an instance secret a restarted consumer proves nothing, so a member that lives, or is
    about to reconnect, must come first. What it leaves is a place that nobody occupies.

    Raises:
        WrongMemberSecret: the member gave an instance secret, and this is not it.
        InstanceInUse: it gave none, and may still be consuming.

    """
    if replaced.credentials.instance_hash:
        check_instance_secret(replaced, hello.instance_secret)
    elif replaced.session is not None or now_ms < replaced.stopped_at_ms:
        raise InstanceInUse(
            f"instance_id: {hello.instance_id!r} belongs to a member that may still be consuming: "
            "try again"
        )
