"""What all members of a consumer group have in common: a process, and a log that survives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from tests.runtime_simulation.plan import Group
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.services import Machine
from tests.support.groups.log import Event, Freeze, Hold, Partition, holds_of
from tests.support.groups.member import Row

GROUP: Final = "readers"
ASSIGNOR: Final = "sticky"
FENCED: Final = "a replaced consumer ended"
FORMER_REFUSED: Final = "a commit of a partition that was added again was refused"


def secret_of(instance: str) -> str:
    """Return the secret of an instance."""
    return f"the secret of {instance}"


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
        if kind == "refused" and "was removed and added again" in detail:
            self.machine.world.reached(FORMER_REFUSED)
        self.events.append(event)
        if kind in {"consumed", "committed"}:
            named = ((self.reading[row[:2]], *row[1:]) for row in event.rows)
            event = replace(event, rows=tuple(named))
        self.in_incarnations.append(event)


@dataclass(eq=False)
class MemberProcess:
    """A member that is killed, frozen and lets itself be stopped; its name is used once."""

    peers: ClassVar[str]
    """What the names of the services begin with that it needs to stay a member."""
    machine: Machine
    name: str
    topic: str
    brokers: list[str]
    incarnation_of: Callable[[str], str]
    instance: str | None
    group: Group
    killed: bool = field(default=False, init=False)
    freezes: list[Freeze] = field(default_factory=list, init=False)
    log: EventsInMemory = field(init=False)
    _process: Process = field(init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _frozen_s: float = field(default=0.0, init=False)
    _froze_with_lease: bool = field(default=False, init=False)
    _task: asyncio.Task[None] = field(init=False)

    def start(self) -> None:
        """Start its process."""
        self.log = EventsInMemory(self.name, self.machine)
        self._process = Process(self.name)
        self._task = self.machine.world.loop.in_process(self._process, self._run())
        self._task.add_done_callback(self._ended)

    @property
    def has_lease(self) -> bool:
        """Whether it may consume what it believes to own."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether it lives, frozen or not, and is not leaving."""
        return self._process.alive and not self._stopping.is_set() and not self._task.done()

    @property
    def found_no_broker(self) -> bool:
        """Whether it has given up because it reached no broker at first."""
        return False

    def kill(self) -> None:
        """End it at once."""
        if self._process.alive:
            self.killed = True
            self.machine.end(self._process)

    def leave(self) -> None:
        """Let it leave its group, and end."""
        self._stopping.set()

    def freeze(self) -> None:
        """Freeze it, as by SIGSTOP."""
        if self._process.alive and not self._process.frozen:
            self._process.frozen = True
            self._frozen_s = self.machine.world.loop.now_s
            self._froze_with_lease = self.has_lease

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
        raise NotImplementedError

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.machine.world.failures.append(f"{self.name} failed: {failure!r}")
