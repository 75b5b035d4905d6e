"""What the API asks of a coordinator, active or standby."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from leadline_client.channel import Hello, Pong, Started, Stopped
from leadline_client.errors import CoordinatorNotAvailable, NotCoordinator
from leadline_coordinator.domain.group import Group
from leadline_coordinator.runtime.channels import Channel
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.desk import GroupDesk
from leadline_coordinator.runtime.elector import ActiveCoordinator, CoordinatorElector


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
    def active(self) -> ActiveCoordinator | None:
        """Who is the coordinator, as far as this process knows."""
        return self._elector.active

    def elsewhere(self) -> str:
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
        if self.is_active:
            failed = [d.group.name for d in self._active().groups.values() if d.group.last_error]
            if failed:
                yield f"{len(failed)} groups could not be rebalanced, as {failed[0]!r}", True

    # -- channels --------------------------------------------------------------

    def open_channel(self, group: str, hello: Hello) -> Channel:
        """Let a consumer into a group.

        Raises:
            NotCoordinator: another process is the coordinator.
            LeadlineError: it cannot be let in.

        """
        if not self.is_active:
            raise NotCoordinator(f"the coordinator is at {self.elsewhere()}")
        channel = Channel(group, next(self._connections))
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

    def desks(self) -> list[GroupDesk]:
        """Return all groups, by name.

        Raises:
            CoordinatorNotAvailable: this process is not the coordinator.

        """
        groups = self._active().groups
        return [groups[name] for name in sorted(groups)]

    def desk(self, name: str) -> GroupDesk:
        """Return one group.

        Raises:
            UnknownGroup: there is no such group.

        """
        return self._active().desk(name)

    def group(self, name: str) -> Group:
        """Return the state of one group.

        Raises:
            UnknownGroup: there is no such group.

        """
        return self.desk(name).group

    def _active(self) -> Coordinator:
        coordinator = self._elector.coordinator
        if coordinator is None or not coordinator.ready.is_set():
            raise CoordinatorNotAvailable("this coordinator is not the active one")
        return coordinator
