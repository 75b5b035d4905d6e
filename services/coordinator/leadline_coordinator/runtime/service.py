"""What the API needs of a coordinator process, active or standby."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from leadline_client.channel import Hello, Pong, Started, Stopped
from leadline_client.errors import (
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownMember,
    UnknownTopic,
)
from leadline_client.wire import TopicPartition
from leadline_common.identity import ServiceAddress, ServiceIdentity
from leadline_common.leader_election import Leader
from leadline_common.settings import CoordinatorSettings
from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.errors import ZkError
from leadline_coordinator.domain.channel_limits import ChannelCount, FrameRate
from leadline_coordinator.runtime.audit import group_entry, refusals_audited, write_audit
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.elector import CoordinatorElector
from leadline_coordinator.runtime.group_manager import Channel, GroupManager
from leadline_coordinator.runtime.offsets import GroupOffsets
from leadline_coordinator.runtime.polled_members import PolledMembers

_LOADING: Final = "this coordinator is elected, and still loading groups"


class CoordinatorService:
    """One coordinator process, as the API sees it."""

    def __init__(self, elector: CoordinatorElector) -> None:
        self._elector = elector
        # Numbers are unique over all terms, so that a channel of an earlier term that ends
        # is not taken for one of this term.
        self._connections = itertools.count(1)
        settings = elector.settings
        self.channels = ChannelCount(
            settings.group_max_channels, settings.group_address_max_channels
        )
        elector.metrics.gauge_from(
            "coordinator_channels", "Open channels of consumers.", lambda: self.channels.total
        )

    # -- this process ----------------------------------------------------------

    @property
    def id(self) -> int:
        """The id of this coordinator."""
        return self._elector.settings.coordinator_id

    @property
    def settings(self) -> CoordinatorSettings:
        """What this coordinator was started with."""
        return self._elector.settings

    @property
    def url(self) -> str:
        """The URL of this coordinator."""
        return self._elector.url

    def cluster_id(self) -> str:
        """Return the id of the cluster in ZooKeeper, "" until it was read."""
        return self._elector.cluster_id

    @property
    def is_active(self) -> bool:
        """Whether this process is the active coordinator, and has loaded every group."""
        coordinator = self._elector.coordinator
        return coordinator is not None and coordinator.ready.is_set()

    @property
    def active(self) -> Leader | None:
        """The active coordinator as far as this process knows."""
        return self._elector.election.leader

    def active_address(self) -> ServiceAddress:
        """Return the address of the active coordinator if it is another process.

        Raises:
            CoordinatorNotAvailable: none is known, or this process is being elected.

        """
        active = self.active
        if active is None or not active.url:
            raise CoordinatorNotAvailable("no coordinator is active at the moment")
        if active.id == self.id:
            raise CoordinatorNotAvailable(_LOADING)
        service = ServiceIdentity("coordinator", active.id)
        return ServiceAddress(service, active.url, active.internal_url)

    async def broker_url(self) -> str | None:
        """Return the URL of a live broker, None if ZooKeeper has none or does not answer."""
        store = self._elector.election.session
        if store is None:
            return None
        with suppress(ZkError):
            return min((one.url for one in await store.brokers()), default=None)
        return None

    def problems(self) -> Iterator[tuple[str, bool]]:
        """Yield problems, each with whether requests are served despite it."""
        store = self._elector.election.session
        if store is None or not store.is_connected():
            yield self._elector.no_session(), False
        elif self.active is None:
            yield "no active coordinator is known", False
        elif self.active.id == self.id and not self.is_active:
            yield _LOADING, False
        if unreadable := UNREADABLE.summary():
            yield unreadable, True

    # -- channels --------------------------------------------------------------

    @property
    def hello_timeout_s(self) -> float:
        """How long a new channel may stay without its first frame."""
        return self._elector.settings.group_hello_timeout_ms / 1000

    def new_frame_rate(self) -> FrameRate:
        """Return the count of the frames of a new channel."""
        most = self._elector.settings.group_max_frames_per_s
        return FrameRate(most, self._elector.monotonic_ms())

    def monotonic_ms(self) -> int:
        """Return the time of this process."""
        return self._elector.monotonic_ms()

    def new_connection(self) -> int:
        """Return the number of a new connection; a delayed Hello is recognized by it."""
        return next(self._connections)

    def open_channel(self, group: str, hello: Hello, connection: int) -> Channel:
        """Let a consumer into a group.

        Raises:
            NotCoordinator: another process is the coordinator.
            LeadlineError: the group refuses it.

        """
        if not self.is_active:
            raise NotCoordinator(f"the coordinator is at {self.active_address().url}")
        channel = Channel(group, connection)
        self._active().open_channel(channel, hello)
        return channel

    def on_answer(self, frame: Pong | Stopped | Started, channel: Channel) -> None:
        """Apply an answer; after the term of its channel it changes nothing."""
        manager = self._manager_of(channel)
        if manager is not None:
            manager.on_answer(frame, channel)

    def on_closed(self, channel: Channel) -> None:
        """Apply the end of a channel."""
        manager = self._manager_of(channel)
        if manager is not None:
            manager.on_closed(channel)

    def _manager_of(self, channel: Channel) -> GroupManager | None:
        return self._active().groups.get(channel.group) if self.is_active else None

    # -- groups ----------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The coordinator epoch of this process.

        Raises:
            CoordinatorNotAvailable: this process is not the active coordinator.

        """
        return self._active().context.term.epoch

    def managers(self) -> list[GroupManager]:
        """Return the managers of all groups, by name.

        Raises:
            CoordinatorNotAvailable: this process is not the active coordinator.

        """
        groups = self._active().groups
        return [groups[name] for name in sorted(groups)]

    def manager(self, name: str) -> GroupManager:
        """Return the manager of one group.

        Raises:
            UnknownGroup: there is no such group.

        """
        return self._active().manager(name)

    def offsets(self) -> GroupOffsets:
        """Return the offsets of all groups."""
        return GroupOffsets(self._active())

    def polled_members(self) -> PolledMembers:
        """Return the members that poll over HTTP.

        Raises:
            CoordinatorNotAvailable: this process is not the active coordinator.

        """
        return PolledMembers(self._active(), self.channels, self.new_connection)

    def partitions_of(self, topics: Iterable[str]) -> set[TopicPartition]:
        """Return all partitions of topics.

        Raises:
            UnknownTopic: there is no such topic.

        """
        counts = self._active().topics.counts
        found: set[TopicPartition] = set()
        for topic in topics:
            if topic not in counts:
                raise UnknownTopic(f"topic {topic!r} does not exist")
            found |= {TopicPartition(topic, number) for number in range(counts[topic])}
        return found

    def leave(self, group: str, member: str, secret: str | None) -> None:
        """Remove a member that has stopped and leaves.

        Raises:
            UnknownGroup, UnknownMember: there is no such member.
            WrongMemberSecret: the caller is not the member.

        """
        manager = self.manager(group)
        with self._active().context.metrics.refused_secrets_counted("leave"):
            manager.members.on_leave(member, secret)
        manager.apply_effects()

    async def evict(self, group: str, member: str) -> None:
        """Evict a member; its partitions go to others once it has certainly stopped.

        Raises:
            UnknownGroup, UnknownMember: there is no such member.

        """
        context = self._active().context
        async with refusals_audited(context, "evict_member", group):
            manager = self.manager(group)
            manager.members.evict(member, UnknownMember("this consumer was evicted by an operator"))
            manager.apply_effects()
        await write_audit(context, group_entry(context, "member_evicted", group, member=member))

    def rebalance(self, group: str) -> GroupManager:
        """Request a rebalance of a group.

        Raises:
            UnknownGroup: there is no such group.

        """
        manager = self.manager(group)
        manager.check_exists()
        manager.group.request_rebalance("requested by an operator")
        manager.apply_effects()
        return manager

    async def delete(self, group: str) -> None:
        """Delete a group without members, with its offsets.

        Raises:
            LeadlineError: see `Coordinator.delete`.

        """
        coordinator = self._active()
        async with refusals_audited(coordinator.context, "delete_group", group):
            await coordinator.delete(group)

    def _active(self) -> Coordinator:
        coordinator = self._elector.coordinator
        if coordinator is None or not coordinator.ready.is_set():
            raise CoordinatorNotAvailable("this coordinator is not the active one")
        return coordinator
