"""What the API asks of a coordinator, active or standby."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from leadline_client.channel import Hello, Pong, Started, Stopped
from leadline_client.errors import (
    CoordinatorNotAvailable,
    GroupNotEmpty,
    NotCoordinator,
    UnknownMember,
    UnknownTopic,
)
from leadline_common.leader_election import Leader
from leadline_coordinator.domain.records import Partition
from leadline_coordinator.runtime.audit import entry_about, refusals_told, tell
from leadline_coordinator.runtime.channels import Channel
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.elector import CoordinatorElector
from leadline_coordinator.runtime.group_manager import GroupManager
from leadline_coordinator.runtime.offsets import GroupOffsets


class CoordinatorService:
    """The face of one coordinator process."""

    def __init__(self, elector: CoordinatorElector) -> None:
        self._elector = elector
        # Over all terms: the end of a channel of an earlier one must not be taken for another's.
        self._connections = itertools.count(1)

    # -- this process ----------------------------------------------------------

    @property
    def id(self) -> int:
        """The number of this coordinator."""
        return self._elector.settings.coordinator_id

    @property
    def url(self) -> str:
        """Where this coordinator answers."""
        return self._elector.url

    @property
    def is_active(self) -> bool:
        """Whether this process is the coordinator, and has loaded every group."""
        coordinator = self._elector.coordinator
        return coordinator is not None and coordinator.ready.is_set()

    @property
    def active(self) -> Leader | None:
        """Who is the coordinator, as far as this process knows."""
        return self._elector.active

    def active_url(self) -> str:
        """Return the URL of the active coordinator, when that is another one.

        Raises:
            CoordinatorNotAvailable: none is known, or this process is just taking over.

        """
        active = self.active
        if active is None or not active.url:
            raise CoordinatorNotAvailable("no coordinator is active at the moment")
        if active.id == self.id:
            raise CoordinatorNotAvailable("this coordinator is taking over")
        return active.url

    def problems(self) -> Iterator[tuple[str, bool]]:
        """Yield what is amiss, each with whether requests are served in spite of it."""
        store = self._elector.store
        if store is None or not store.is_connected():
            yield "no session with ZooKeeper", False
        elif self.active is None:
            yield "no active coordinator is known", False
        elif self.active.id == self.id and not self.is_active:
            yield "taking over as the active coordinator", False

    # -- channels --------------------------------------------------------------

    def new_connection(self) -> int:
        """Return the number of a connection just opened; by it a late Hello is known for one."""
        return next(self._connections)

    def open_channel(self, group: str, hello: Hello, connection: int) -> Channel:
        """Let a consumer into a group.

        Raises:
            NotCoordinator: another process is the coordinator.
            LeadlineError: it cannot be let in.

        """
        if not self.is_active:
            raise NotCoordinator(f"the coordinator is at {self.active_url()}")
        channel = Channel(group, connection)
        self._active().open_channel(channel, hello)
        return channel

    def on_answer(self, frame: Pong | Stopped | Started, channel: Channel) -> None:
        """Take in an answer; one that comes after the term of its channel changes nothing."""
        if self.is_active:
            desk = self._active().groups.get(channel.group)
            if desk is not None:
                desk.on_answer(frame, channel)

    def on_closed(self, channel: Channel) -> None:
        """Take in that a channel has ended."""
        if self.is_active:
            desk = self._active().groups.get(channel.group)
            if desk is not None:
                desk.on_closed(channel)

    # -- groups ----------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch of the active coordinator, which is this process.

        Raises:
            CoordinatorNotAvailable: it is not.

        """
        return self._active().context.term.epoch

    def desks(self) -> list[GroupManager]:
        """Return all groups, by name.

        Raises:
            CoordinatorNotAvailable: this process is not the coordinator.

        """
        groups = self._active().groups
        return [groups[name] for name in sorted(groups)]

    def desk(self, name: str) -> GroupManager:
        """Return one group.

        Raises:
            UnknownGroup: there is no such group.

        """
        return self._active().desk(name)

    def offsets(self) -> GroupOffsets:
        """Return the door to the offsets of all groups."""
        return GroupOffsets(self._active())

    def partitions_of(self, topics: Iterable[str]) -> set[Partition]:
        """Return all partitions of topics.

        Raises:
            UnknownTopic: there is no such topic.

        """
        counts = self._active().topics.counts
        found: set[Partition] = set()
        for topic in topics:
            if topic not in counts:
                raise UnknownTopic(f"topic {topic!r} does not exist")
            found |= {(topic, number) for number in range(counts[topic])}
        return found

    def leave(self, group: str, member: str) -> None:
        """Let a member go that has stopped by itself.

        Raises:
            UnknownGroup, UnknownMember: there is no such member.

        """
        desk = self.desk(group)
        desk.members.on_leave(member)
        desk.carry_on()

    async def evict(self, group: str, member: str) -> None:
        """Put a member out; its partitions go to others once it has certainly stopped.

        Raises:
            UnknownGroup, UnknownMember: there is no such member.

        """
        context = self._active().context
        async with refusals_told(context, "evict_member", group):
            desk = self.desk(group)
            desk.members.evict(member, UnknownMember("this consumer was put out of its group"))
            desk.carry_on()
        await tell(context, entry_about(context, "member_evicted", group, member=member))

    def rebalance(self, group: str) -> GroupManager:
        """Have a group looked at, as whatever may change its assignment does.

        Raises:
            UnknownGroup: there is no such group.

        """
        desk = self.desk(group)
        desk.group.request_rebalance("asked for")
        desk.carry_on()
        return desk

    async def delete(self, group: str) -> None:
        """Delete a group without members, with its offsets.

        Raises:
            UnknownGroup: there is no such group.
            GroupNotEmpty: it has members.
            OutcomeUnknown: ZooKeeper was lost on the way.

        """
        coordinator = self._active()
        async with refusals_told(coordinator.context, "delete_group", group):
            desk = coordinator.desk(group)
            if desk.group.is_active or group in coordinator.groups_being_rebalanced:
                raise GroupNotEmpty(f"group {group!r} has members: stop them first")
            await coordinator.delete(group)

    def _active(self) -> Coordinator:
        coordinator = self._elector.coordinator
        if coordinator is None or not coordinator.ready.is_set():
            raise CoordinatorNotAvailable("this coordinator is not the active one")
        return coordinator
