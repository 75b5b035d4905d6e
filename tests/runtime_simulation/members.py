"""Members of a consumer group: consumers of the client library, each a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from leadline_client.client import AsyncClient
from leadline_client.errors import AllKnownBrokersNotAvailable
from leadline_client.fetching import ConsumedRecord
from tests.runtime_simulation.client_producers import new_client
from tests.runtime_simulation.plan import Group
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.services import Machine
from tests.support.checks.anomalies import Anomalies
from tests.support.checks.history import History
from tests.support.groups.log import (
    Event,
    Freeze,
    Hold,
    Partition,
    consumed_without_holding,
    group_history,
    holds_of,
    two_owners,
    unconsumed,
)
from tests.support.groups.member import Member, Row

GROUP: Final = "readers"
KEPT: Final = "a static member got its partitions again"


@dataclass(eq=False)
class EventsInMemory:
    """The log of one member, which survives it."""

    member: str
    machine: Machine
    events: list[Event] = field(default_factory=list)
    reading: dict[Partition, str] = field(default_factory=dict)
    """Of which incarnation it consumed last."""
    in_incarnations: list[Event] = field(default_factory=list)
    """The events, with incarnations as the topics of what was consumed and committed."""

    def write(
        self, kind: str, rows: Iterable[Row] = (), detail: str = "", at_s: float | None = None
    ) -> None:
        """Write an event down, with the present time unless it is of an earlier one."""
        now_s = self.machine.world.loop.now_s if at_s is None else at_s
        event = Event(self.member, now_s, kind, tuple(rows), detail)
        self.machine.world.note("%s %s %s %s", self.member, kind, event.rows, detail)
        self.events.append(event)
        if kind in {"consumed", "committed"}:
            named = ((self.reading[row[:2]], *row[1:]) for row in event.rows)
            event = replace(event, rows=tuple(named))
        self.in_incarnations.append(event)


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
class GroupMember:
    """One consumer; its name is used once."""

    machine: Machine
    name: str
    topic: str
    brokers: list[str]
    group: Group
    incarnation_of: Callable[[str], str]
    instance: str | None
    killed: bool = field(default=False, init=False)
    freezes: list[Freeze] = field(default_factory=list, init=False)
    log: EventsInMemory = field(init=False)
    _process: Process = field(init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _frozen_s: float = field(default=0.0, init=False)
    _member: SimulatedMember | None = field(default=None, init=False)
    _froze_with_lease: bool = field(default=False, init=False)
    _task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.log = EventsInMemory(self.name, self.machine)
        self._process = Process(self.name)
        self._task = self.machine.world.loop.in_process(self._process, self._run())
        self._task.add_done_callback(self._ended)

    @property
    def running(self) -> bool:
        """Whether it lives, frozen or not, and is not leaving."""
        return self._process.alive and not self._stopping.is_set() and not self._task.done()

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

    def kill(self) -> None:
        """End it at once."""
        if self._process.alive:
            self.killed = True
            self.machine.end(self._process)

    def leave(self) -> None:
        """Let it close its consumer, and end."""
        self._stopping.set()

    def freeze(self) -> None:
        """Freeze it, as by SIGSTOP."""
        if self._process.alive and not self._process.frozen:
            self._process.frozen = True
            self._frozen_s = self.machine.world.loop.now_s
            self._froze_with_lease = self._member is not None and self._member.has_lease

    def resume(self) -> None:
        """Let it go on.

        If its lease had run out before, because it was cut off, it froze as the owner of nothing.
        """
        if self._process.alive and self._process.frozen:
            now_s = self.machine.world.loop.now_s
            if self._froze_with_lease:
                self.freezes.append(Freeze(self.name, self._frozen_s, now_s))
            self.machine.world.loop.resume(self._process)

    def holds(self) -> list[Hold]:
        """Return what it held and when."""
        return holds_of(self.log.events, killed=self.killed, freezes=self.freezes)

    async def _run(self) -> None:
        options = argparse.Namespace(
            group=GROUP,
            topics=self.topic,
            pattern=None,
            assignor="sticky",
            protocol=self.group.protocol,
            names_offsets=not self.group.commits_positions,
            instance_id=self.instance,
            client_id=self.name,
            begin_at=None,
        )
        client = new_client(self.machine.web, self.brokers)
        self._member = SimulatedMember(client, options, self.log, self.incarnation_of)
        await self._member.run(self._stopping)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.machine.world.failures.append(f"{self.name} failed: {failure!r}")


@dataclass(eq=False)
class Members:
    """All members that a group has and had. A run has one group, of one topic."""

    machine: Machine
    topic: str
    brokers: list[str]
    group: Group
    history: History
    ever: list[GroupMember] = field(default_factory=list, init=False)

    def join(self, instance: str | None = None) -> GroupMember:
        """Start another member; a static one is the same as an earlier one of its `instance`."""
        name = f"member-{len(self.ever) + 1}"
        if instance is None and self.group.static:
            instance = f"instance-{name}"
        member = GroupMember(
            self.machine, name, self.topic, self.brokers, self.group, self._incarnation_of, instance
        )
        self.ever.append(member)
        return member

    def _incarnation_of(self, value: str) -> str:
        sends = self.history.sends
        name: str = sends.partition_of(sends.id_of(value))[0]
        return name

    def leave_all(self) -> None:
        """Let all members leave."""
        for member in self.running():
            member.leave()

    def join_all(self, count: int) -> None:
        """Start so many members."""
        for _ in range(count):
            self.join()

    def running(self) -> list[GroupMember]:
        """Return the members that live and are not leaving."""
        return [member for member in self.ever if member.running]

    def start_again(self) -> None:
        """Start those again that found no broker when they started, as their users would."""
        for member in self.running():
            if member.found_no_broker:
                member.kill()
                self.join(member.instance)

    def committed(self) -> dict[Partition, int]:
        """Return the offsets of which members were told that they are committed.

        By incarnations of the topic.
        """
        found: dict[Partition, int] = {}
        for member in self.ever:
            for event in member.log.in_incarnations:
                if event.kind == "committed":
                    for topic, number, _, after in event.rows:
                        found[topic, number] = max(after, found.get((topic, number), 0))
        return found

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
        group_history(GROUP, of_incarnations, instances).check(anomalies)
        return [
            *two_owners(holds),
            *consumed_without_holding(sorted(events, key=_time), holds),
            *map(str, anomalies.all()),
            *unconsumed(acked, of_incarnations),
        ]

    def events(self) -> list[Event]:
        """Return what happened to all members, with incarnations as topics."""
        found = [event for member in self.ever for event in member.log.in_incarnations]
        return sorted(found, key=_time)


def _time(event: Event) -> float:
    return event.at_s
