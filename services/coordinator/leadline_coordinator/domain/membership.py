"""What happens to the members of a group: they come, answer, fall silent, go (seed 3; R16).

Everything comes in as a call with the time of its occurrence, in monotonic ms. Whatever
may call for another assignment sets the group's `wants_rebalance`.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline_client.channel import Hello, Pong, Started, Stopped, partition_pairs
from leadline_client.errors import (
    FencedInstance,
    GroupFull,
    InvalidRequest,
    InvalidSubscription,
    LeadlineError,
    RebalanceInProgress,
    UnknownMember,
)
from leadline_coordinator.domain.effects import Removed
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import Limits, Member
from leadline_coordinator.domain.records import Committed, GroupRecord, Partition, Subscription
from leadline_coordinator.domain.states import GroupState
from leadline_coordinator.domain.subscribing import check_fits, subscription_of


def restored(
    record: GroupRecord,
    epoch: int,
    limits: Limits,
    topics: Mapping[str, int],
    offsets: Mapping[Partition, Committed],
    now_ms: int,
) -> Group:
    """Return a group as a predecessor left it: its members are expected back.

    A member that does not come back has certainly stopped once the evict limit has
    passed: the predecessor acknowledged nothing after it had lost its office (R10).
    """
    group = Group(record.name, epoch, limits, topics, offsets)
    group.assignor, group.protocol = record.assignor, record.protocol
    group.generation = record.generation
    group.empty_since_wall_ms = record.empty_since_ms
    group.owners = {part: name for part, name in record.owners.items() if name in record.members}
    rest_ms = now_ms + limits.evict_limit_ms
    for name, subscription in record.members.items():
        grace_ms = limits.static_grace_ms if subscription.instance_id is not None else 0
        leave_ms = max(rest_ms, now_ms + grace_ms)
        group.admit(Member(name, subscription, rest_at_ms=rest_ms, leave_at_ms=leave_ms))
    for partition, name in group.owners.items():
        group.members[name].held.add(partition)
    if group.members:
        group.state = GroupState.RECOVERING
        group.request_rebalance("a new coordinator has taken over")
    return group


class Membership:
    """The door to one group for everything that happens to its members."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._limits = group.limits
        self._last_tick_ms: int | None = None

    def on_hello(self, hello: Hello, connection: int, new_id: str, now_ms: int) -> Member:
        """Let a consumer join, or come back; it is `new_id` unless it is a member already.

        Raises:
            InvalidRequest: the consumer has opened another channel since this one.
            InvalidSubscription: it makes no sense, or does not fit the other members.
            RebalanceInProgress: it does not fit them, but they are away: they may be gone soon.
            GroupFull: there is no room.

        """
        group = self.group
        if not group.is_active:
            self._last_tick_ms = None  # a group without anybody is not ticked: that was no pause
        subscription = subscription_of(hello)
        known = group.members.get(hello.member) if hello.member is not None else None
        replaced = self._place_of(subscription.instance_id, known)
        if any(one is not None and one.connection > connection for one in (known, replaced)):
            # It was on its way for longer than its sender would wait: what it says is not so now.
            raise InvalidRequest("hello: this member has a later channel")
        self._check_fits(hello, known or replaced)
        if known is None and replaced is None and len(group.members) >= self._limits.max_size:
            raise GroupFull(f"group {group.name!r} has {len(group.members)} members already")
        group.assignor, group.protocol = hello.assignor, hello.protocol
        if known is None:
            member = self._join(Member(new_id, subscription), replaced)
        else:
            member = self._come_back(known, hello, subscription)
        group.connect(member, connection, now_ms)
        self._catch_up(member, is_back=known is not None)
        return member

    def on_closed(self, connection: int, now_ms: int) -> None:
        """Take in that a channel has ended: the consumer stops, and may come back."""
        member = self.group.member_at(connection)
        if member is not None:
            self._set_aside(member, now_ms, now_ms + self._limits.reconnect_grace_ms)

    def on_answer(self, frame: Pong | Stopped | Started, connection: int, now_ms: int) -> None:
        """Take in an answer; one of an older coordinator or channel changes nothing."""
        group = self.group
        member = group.member_at(connection)
        if member is None or member.line is None or frame.coordinator_epoch != group.epoch:
            return
        match frame:
            case Pong():
                member.line.on_answer(frame.id, now_ms)
            case Stopped():
                group.release(member, member.line.on_stopped(frame.id, now_ms))
            case Started():
                if member.line.on_started(frame.id, now_ms):
                    member.started = not member.outdated
                    member.confirmed = member.told
                    if group.state is GroupState.STARTING:
                        group.awaited.discard(member.id)

    def on_leave(self, name: str) -> None:
        """Let a member go that has stopped by itself.

        Raises:
            UnknownMember: it is none.

        """
        member = self.group.member(name)
        member.held.clear()
        self._remove(member, "left", None, 0)

    def evict(self, name: str, why: LeadlineError, reason: str = "evicted") -> None:
        """Put a member out; its partitions are free once it has certainly stopped.

        Raises:
            UnknownMember: it is none.

        """
        member = self.group.member(name)
        self._remove(member, reason, why, member.certain_rest_ms(self._limits))

    def on_tick(self, now_ms: int) -> None:
        """Let time pass: ping, put out who is silent or away too long, release what is at rest."""
        group = self.group
        self._make_up_for_a_pause(now_ms)
        for member in list(group.members.values()):
            if member.line is None:
                self._check_away(member, now_ms)
            elif now_ms >= member.certain_rest_ms(self._limits):
                self._silent(member, now_ms)
            elif now_ms - member.line.pinged_at_ms >= self._limits.ping_interval_ms:
                group.send_ping(member.line, now_ms)
        for name, ghost in list(group.ghosts.items()):
            if now_ms >= ghost.release_at_ms:
                del group.ghosts[name]
                group.awaited.discard(name)

    # -- coming ----------------------------------------------------------------

    def _place_of(self, instance_id: str | None, known: Member | None) -> Member | None:
        """Return the other member whose place a consumer takes by its instance id."""
        if instance_id is None:
            return None
        found = self.group.member_of_instance(instance_id)
        return found if found is not known else None

    def _check_fits(self, hello: Hello, place: Member | None) -> None:
        """Refuse who wants to be assigned in another way than all members but its own `place`."""
        group = self.group
        if len(group.members) == (place is not None):
            return
        try:
            check_fits(hello, group.assignor, group.protocol)
        except InvalidSubscription as refusal:
            if any(one.line is not None for one in group.members.values() if one is not place):
                raise
            reason = f"{refusal.message}. They are away just now, and may be gone soon: try again"
            raise RebalanceInProgress(reason) from None

    def _join(self, member: Member, replaced: Member | None) -> Member:
        group = self.group
        if replaced is not None:
            fenced = FencedInstance("another consumer with this instance id has joined")
            self._remove(replaced, "fenced", fenced, replaced.certain_rest_ms(self._limits))
            for partition, name in group.owners.items():
                if name == replaced.id:
                    group.owners[partition] = member.id
        group.admit(member)
        group.unrecorded = True
        group.empty_since_wall_ms = None
        group.request_rebalance(f"{member.id} has joined")
        return member

    def _come_back(self, member: Member, hello: Hello, subscription: Subscription) -> Member:
        """Take a member back on a new channel: it has stopped, and claims what it would keep."""
        group = self.group
        if member.line is not None:
            group.disconnect(member.line.connection, None)
        member.held &= set(partition_pairs(hello.owned))
        if subscription != member.subscription:
            group.forget_instance(member)
            member.subscription = subscription
            group.remember_instance(member)
            group.unrecorded = True
        group.request_rebalance(f"{member.id} is back")
        return member

    def _catch_up(self, member: Member, *, is_back: bool) -> None:
        """Tell a member at once what need not, or must not, wait for the next rebalance."""
        group = self.group
        if group.state is GroupState.RECOVERING and is_back:
            # What is recorded was free when it was: it is this member's, whoever else comes back,
            # unless it took the place of one that may still be reading.
            group.awaited.discard(member.id)
            part = group.parts()[member.id]
            if all(part.isdisjoint(ghost.held) for ghost in group.ghosts.values()):
                group.send_start(member, part)
        elif group.keeps is not None and member.id in group.awaited:
            if group.has_to_stop(member):
                group.send_stop(member)
            else:
                group.awaited.discard(member.id)

    # -- going -----------------------------------------------------------------

    def _set_aside(self, member: Member, now_ms: int, rest_ms: int) -> None:
        """Note that a member is without a channel: at rest from `rest_ms` on, or earlier."""
        group = self.group
        if member.line is None:
            return
        member.rest_at_ms = min(rest_ms, member.certain_rest_ms(self._limits))
        is_static = member.subscription.instance_id is not None
        grace_ms = self._limits.static_grace_ms if is_static else self._limits.reconnect_grace_ms
        member.leave_at_ms = now_ms + grace_ms
        group.unlink(member.line.connection)
        member.line = None
        if group.state is GroupState.STARTING:
            group.awaited.discard(member.id)

    def _check_away(self, member: Member, now_ms: int) -> None:
        group = self.group
        if now_ms >= member.rest_at_ms:
            group.release(member, member.held)
            if group.state is GroupState.RECOVERING:
                group.awaited.discard(member.id)
        if now_ms >= member.leave_at_ms:
            self._remove(member, "lost", None, member.rest_at_ms)

    def _silent(self, member: Member, now_ms: int) -> None:
        """Put out a member that has certainly stopped by itself; keep the place of a static one."""
        why = UnknownMember("no answer came in time: join again")
        if member.subscription.instance_id is None or member.line is None:
            member.held.clear()
            self._remove(member, "silent", why, now_ms)
            return
        self.group.disconnect(member.line.connection, why)
        self._set_aside(member, now_ms, now_ms)

    def _remove(self, member: Member, reason: str, why: LeadlineError | None, rest_ms: int) -> None:
        self.group.expel(member, why, rest_ms)
        self.group.outbox.append(Removed(member.id, reason))
        self.group.request_rebalance(f"{member.id} is gone: {reason}")

    def _make_up_for_a_pause(self, now_ms: int) -> None:
        """Blame no member for not having been listened to while this process stood still."""
        before, self._last_tick_ms = self._last_tick_ms, now_ms
        pause_ms = 0 if before is None else now_ms - before
        if pause_ms <= self._limits.ping_interval_ms:
            return
        for member in self.group.members.values():
            if member.line is not None:
                member.line.acknowledged_at_ms += pause_ms
            else:
                member.leave_at_ms += pause_ms
