"""Members of a consumer group: consumers of the client library, each a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from leadline_client.errors import AllKnownBrokersNotAvailable
from tests.runtime_simulation.client_producers import new_client
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.services import Machine
from tests.support.groups.log import Event, Freeze, Hold, Partition, holds_of, violations
from tests.support.groups.member import Member, Row

GROUP: Final = "readers"


@dataclass(eq=False)
class EventsInMemory:
    """The log of one member, which survives it."""

    member: str
    machine: Machine
    events: list[Event] = field(default_factory=list)

    def write(
        self, kind: str, rows: Iterable[Row] = (), detail: str = "", at_s: float | None = None
    ) -> None:
        """Write an event down, with the present time unless it is of an earlier one."""
        now_s = self.machine.world.loop.now_s if at_s is None else at_s
        event = Event(self.member, now_s, kind, tuple(rows), detail)
        self.machine.world.note("%s %s %s %s", self.member, kind, event.rows, detail)
        self.events.append(event)


@dataclass(eq=False)
class GroupMember:
    """One consumer; its name is used once."""

    machine: Machine
    name: str
    topic: str
    brokers: list[str]
    protocol: str
    killed: bool = field(default=False, init=False)
    freezes: list[Freeze] = field(default_factory=list, init=False)
    log: EventsInMemory = field(init=False)
    _process: Process = field(init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _frozen_s: float = field(default=0.0, init=False)
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

    def resume(self) -> None:
        """Let it go on."""
        if self._process.alive and self._process.frozen:
            now_s = self.machine.world.loop.now_s
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
            protocol=self.protocol,
            instance_id=None,
            client_id=self.name,
            begin_at=None,
        )
        client = new_client(self.machine.web, self.brokers)
        await Member(client, options, self.log).run(self._stopping)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.machine.world.failures.append(f"{self.name} failed: {failure!r}")


@dataclass(eq=False)
class Members:
    """All members that a group has and had. A run has one group, of one topic."""

    machine: Machine
    topic: str
    brokers: list[str]
    protocol: str
    ever: list[GroupMember] = field(default_factory=list, init=False)

    def join(self) -> GroupMember:
        """Start another member."""
        name = f"member-{len(self.ever) + 1}"
        member = GroupMember(self.machine, name, self.topic, self.brokers, self.protocol)
        self.ever.append(member)
        return member

    def running(self) -> list[GroupMember]:
        """Return the members that live and are not leaving."""
        return [member for member in self.ever if member.running]

    def start_again(self) -> None:
        """Start those again that found no broker when they started, as their users would."""
        for member in self.running():
            if member.found_no_broker:
                member.kill()
                self.join()

    def committed(self) -> dict[Partition, int]:
        """Return the offsets of which members were told that they are committed."""
        found: dict[Partition, int] = {}
        for member in self.ever:
            for event in member.log.events:
                if event.kind == "committed":
                    for topic, number, _, after in event.rows:
                        found[topic, number] = max(after, found.get((topic, number), 0))
        return found

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
        events.sort(key=lambda event: event.at_s)
        holds = [hold for member in self.ever for hold in member.holds()]
        return violations(GROUP, events, holds, acked)
