"""The members of a consumer group, those of the client library and those that poll over HTTP."""

from __future__ import annotations

import argparse
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar, Final

from leadline_client.client import AsyncClient
from leadline_client.consumer_settings import OffsetReset
from leadline_client.errors import AllKnownBrokersNotAvailable
from leadline_client.fetching import ConsumedRecord
from tests.runtime_simulation.client_producers import new_client
from tests.runtime_simulation.member_processes import (
    ASSIGNOR,
    FENCED,
    GROUP,
    EventsInMemory,
    MemberProcess,
    secret_of,
)
from tests.runtime_simulation.plan import Group
from tests.runtime_simulation.polled_members import PolledMember
from tests.runtime_simulation.services import Machine
from tests.support.checks.anomalies import Anomalies
from tests.support.checks.history import History
from tests.support.groups.log import (
    Event,
    Partition,
    consumed_without_holding,
    group_history,
    two_owners,
    unconsumed,
)
from tests.support.groups.member import Member

_MOST_GENERATIONS: Final = 1_000_000
KEPT: Final = "a static member got its partitions again"


@dataclass(frozen=True, slots=True)
class SetBack:
    """An offset that operators have set back, or deleted, at a node of ZooKeeper."""

    partition: Partition
    offset: int
    path: str
    zxid: int
    at_s: float


class SimulatedMember(Member):
    """A member that knows of which incarnation of a topic a record is, by its value."""

    def __init__(
        self,
        client: AsyncClient,
        options: argparse.Namespace,
        log: EventsInMemory,
        incarnation_of: Callable[[str], str],
    ) -> None:
        super().__init__(client, options, log)
        self._events = log
        self._incarnation_of = incarnation_of

    @property
    def has_lease(self) -> bool:
        """Whether it may consume what it believes to own."""
        coordinator = self._consumer._coordinator
        return coordinator is not None and coordinator.session.may_consume()

    def _consumed(self, records: Sequence[ConsumedRecord], given_s: float) -> None:
        for place, some in groupby(records, lambda one: (one.topic, one.partition, self._of(one))):
            topic, partition, incarnation = place
            self._events.reading[topic, partition] = incarnation
            super()._consumed(list(some), given_s)

    def _of(self, record: ConsumedRecord) -> str:
        return self._incarnation_of((record.value or b"").decode())


@dataclass(eq=False)
class GroupMember(MemberProcess):
    """One consumer of the client library."""

    peers: ClassVar[str] = "coordinator-"
    _member: SimulatedMember | None = field(default=None, init=False)

    @property
    def has_lease(self) -> bool:
        """Whether it may consume what it believes to own."""
        return self._member is not None and self._member.has_lease

    @property
    def found_no_broker(self) -> bool:
        """Whether its consumer has ended because it reached no broker at first."""
        kinds = {event.kind for event in self.log.events}
        last = self.log.events[-1] if self.log.events else None
        return (
            last is not None
            and kinds == {"joining", "failed"}
            and last.detail.startswith(AllKnownBrokersNotAvailable.__name__)
        )

    def _offset_reset(self) -> OffsetReset | None:
        """Let half of the members of some groups go on by themselves where a log was truncated."""
        return "earliest" if self.group.replaced and sum(self.name.encode()) % 2 else None

    async def _run(self) -> None:
        has_secret = self.group.instance_secrets and self.instance is not None
        secret = secret_of(self.instance or "") if has_secret else None
        options = argparse.Namespace(
            group=GROUP,
            topics=self.topic,
            pattern=None,
            assignor=ASSIGNOR,
            protocol=self.group.protocol,
            names_offsets=not self.group.commits_positions,
            instance_id=self.instance,
            client_id=self.name,
            begin_at=None,
            instance_secret=secret,
            offset_reset=self._offset_reset(),
        )
        client = new_client(self.machine.web, self.brokers)
        self._member = SimulatedMember(client, options, self.log, self.incarnation_of)
        await self._member.run(self._stopping)
        if self._member.fenced:
            self.machine.world.reached(FENCED)


@dataclass(eq=False)
class Members:
    """All members that a group has and had. A run has one group, of one topic."""

    machine: Machine
    topic: str
    brokers: list[str]
    group: Group
    history: History
    ever: list[MemberProcess] = field(default_factory=list, init=False)
    deleted_s: list[float] = field(default_factory=list, init=False)
    """When the group was deleted: another one of its name begins with the first generation."""
    set_back: list[SetBack] = field(default_factory=list, init=False)

    def join(self, instance: str | None = None, *, polled: bool = False) -> MemberProcess:
        """Start another member; a static one is the same as an earlier one of its `instance`."""
        name = f"member-{len(self.ever) + 1}"
        if instance is None and self.group.static:
            instance = f"instance-{name}"
        kind = PolledMember if polled else GroupMember
        member = kind(
            self.machine, name, self.topic, self.brokers, self._incarnation_of, instance, self.group
        )
        self.ever.append(member)
        member.start()
        return member

    def join_any(self) -> MemberProcess:
        """Start another member, of each kind as often as there are such at first."""
        share = self.group.polled / (self.group.polled + self.group.members)
        return self.join(polled=self.machine.world.chance(share))

    def join_again(self, member: MemberProcess) -> None:
        """Start a member again that has ended, as the same one if it is static."""
        self.join(member.instance, polled=isinstance(member, PolledMember))

    def _incarnation_of(self, value: str) -> str:
        sends = self.history.sends
        name: str = sends.partition_of(sends.id_of(value))[0]
        return name

    def leave_all(self) -> None:
        """Let all members leave."""
        for member in self.running():
            member.leave()

    def join_all(self) -> None:
        """Start as many members of each kind as the group has at first."""
        for _ in range(self.group.members):
            self.join()
        for _ in range(self.group.polled):
            self.join(polled=True)

    def running(self) -> list[MemberProcess]:
        """Return the members that live and are not leaving."""
        return [member for member in self.ever if member.running]

    def start_again(self) -> None:
        """Start those again that found no broker when they started, as their users would."""
        for member in self.running():
            if member.found_no_broker:
                member.kill()
                self.join_again(member)

    def count_kept(self) -> None:
        """Count the static members that got the partitions again which they had when they died."""
        for place, dead in enumerate(self.ever):
            same = (m for m in self.ever[place + 1 :] if m.instance == dead.instance is not None)
            again = next(same, None)
            if again is None or not dead.killed:
                continue
            had = {hold.partition for hold in dead.holds()[-1:]}
            got = next((event for event in again.log.events if event.kind == "assigned"), None)
            if had and got is not None and had <= set(got.partitions):
                self.machine.world.reached(KEPT)

    def is_settled(self, partitions: Iterable[Partition]) -> bool:
        """Tell whether each partition has one owner, by what the members that run have heard."""
        held = [
            hold.partition
            for member in self.running()
            for hold in member.holds()
            if hold.until_s == math.inf
        ]
        return sorted(held) == sorted(partitions)

    def judge(self, acked: Mapping[Partition, Sequence[int]]) -> list[str]:
        """Say everything that is wrong with what the members did."""
        events = [event for member in self.ever for event in member.log.events]
        holds = [hold for member in self.ever for hold in member.holds()]
        anomalies, of_incarnations = Anomalies(), self.events()
        instances = {member.name: member.instance for member in self.ever if member.instance}
        history = group_history(GROUP, map(self._of_its_group, of_incarnations), instances)
        for one in self.set_back:
            history.was_reset(one.partition, one.offset, one.at_s)
        history.check(anomalies)
        return [
            *two_owners(holds),
            *consumed_without_holding(sorted(events, key=_time), holds),
            *map(str, anomalies.all()),
            *unconsumed(acked, of_incarnations),
        ]

    def _of_its_group(self, event: Event) -> Event:
        """Return an event with a generation that no other group of the name has had."""
        if event.kind != "assigned" or not event.detail:
            return event
        earlier = bisect_right(self.deleted_s, event.at_s)
        return replace(event, detail=str(int(event.detail) + earlier * _MOST_GENERATIONS))

    def events(self) -> list[Event]:
        """Return what happened to all members, with incarnations as topics."""
        found = [event for member in self.ever for event in member.log.in_incarnations]
        return sorted(found, key=_time)


def _time(event: Event) -> float:
    return event.at_s
