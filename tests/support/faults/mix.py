"""A random mix of faults: a new set every window, one window in four quiet (S30).

In a window at most one broker, one controller, one coordinator, one member of the group and one
link have a fault; the controllers, the coordinators and the links have two of each to lose.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Final

from tests.support.faults.faults import frozen, kill
from tests.support.faults.links import ZOOKEEPER, Pace
from tests.support.faults.scenario import LinkedScenario
from tests.support.groups.group import LoadedGroup

QUIET_EVERY: Final = 4
SLOW: Final = Pace(delay_s=0.3, bytes_per_s=256_000 / 8)
_BROKERS: Final = ("broker-1", "broker-2", "broker-3")

Fault = Callable[[float], Awaitable[None]]
"""Does something, holds it for so many seconds, and undoes it."""


class Mix:
    """Faults that a seed decides about, in a loaded cluster with a group."""

    def __init__(self, running: LinkedScenario, group: LoadedGroup, seeded: Random) -> None:
        self._running = running
        self._cluster = running.cluster
        self._links = running.links
        self._group = group
        self._seeded = seeded
        self._members = 3
        self.done: Counter[str] = Counter()
        self.quiet = 0
        self._kinds: tuple[dict[str, Fault], ...] = (
            {
                "broker killed": self._kill_broker,
                "broker frozen": self._freeze_broker,
                "broker restarted cleanly": self._restart_broker,
                "broker isolated": self._isolate,
                "broker cut off from ZooKeeper": self._cut_from_zookeeper,
            },
            {"controller killed": self._kill_active, "controller frozen": self._freeze_active},
            {"coordinator killed": self._kill_coordinator},
            {"member killed": self._kill_member, "member frozen": self._freeze_member},
            {"link cut": self._cut_link, "link cut one way": self._cut_one_way, "slow": self._slow},
        )

    async def windows(self, count: int, seconds: float) -> None:
        """Go through so many windows of so many seconds each."""
        for number in range(count):
            end_s = time.monotonic() + seconds
            if number % QUIET_EVERY == QUIET_EVERY - 1:
                await self._recover()
                self.quiet += 1
            else:
                await self._window(seconds)
            await asyncio.sleep(max(0.0, end_s - time.monotonic()))

    async def start_group(self) -> None:
        """Start the members, and wait until each has a part."""
        names = [f"m{number}" for number in range(self._members)]
        self._group.start(*names)
        await self._group.settled(*names, deadline_s=60.0)

    async def _window(self, seconds: float) -> None:
        kinds = self._seeded.sample(self._kinds, self._seeded.randint(1, 3))
        chosen = [self._seeded.choice(sorted(kind)) for kind in kinds]
        faults = {name: fault for kind in kinds for name, fault in kind.items()}
        async with asyncio.TaskGroup() as group:
            for name in chosen:
                group.create_task(self._run(faults[name], seconds))
                self.done[name] += 1
        self._links.heal()
        for name, child in self._cluster.supervisor.children.items():
            self._cluster.resume(name)
            if not child.running:
                self._cluster.restart(name)

    async def _run(self, fault: Fault, seconds: float) -> None:
        """Begin somewhen in the first third, and hold it for at most half of the window."""
        await asyncio.sleep(self._seeded.uniform(0.0, seconds / 3))
        await fault(self._seeded.uniform(seconds / 8, seconds / 2))

    async def _recover(self) -> None:
        await self._running.full_isr()
        await self._running.load.progress()

    async def _down(self, name: str, hold_s: float) -> None:
        await kill(self._running, name)
        await asyncio.sleep(hold_s if self._seeded.random() < 0.7 else 0.0)
        self._cluster.restart(name)

    def _broker(self) -> str:
        return self._seeded.choice(_BROKERS)

    async def _kill_broker(self, hold_s: float) -> None:
        await self._down(self._broker(), hold_s)

    async def _freeze_broker(self, hold_s: float) -> None:
        await self._freeze(self._broker(), hold_s)

    async def _freeze(self, name: str, hold_s: float) -> None:
        if self._cluster.child(name).running:
            await frozen(self._running, name, 0.0, hold_s)

    async def _restart_broker(self, _: float) -> None:
        name = self._broker()
        await self._cluster.terminate(name)
        self._cluster.restart(name)

    async def _isolate(self, hold_s: float) -> None:
        self._links.isolate(self._broker())
        await asyncio.sleep(hold_s)
        self._links.heal()

    async def _cut_from_zookeeper(self, hold_s: float) -> None:
        await self._cut_for(hold_s, [(broker := self._broker(), ZOOKEEPER), (ZOOKEEPER, broker)])

    async def _kill_active(self, hold_s: float) -> None:
        await self._down(await self._cluster.active_controller(), hold_s)

    async def _freeze_active(self, hold_s: float) -> None:
        await self._freeze(await self._cluster.active_controller(), hold_s)

    async def _kill_coordinator(self, hold_s: float) -> None:
        await self._down(await self._cluster.active_coordinator(), hold_s)

    async def _kill_member(self, _: float) -> None:
        await self._group.kill(self._seeded.choice(self._group.running()))
        self._group.start(f"m{self._members}")
        self._members += 1

    async def _freeze_member(self, hold_s: float) -> None:
        async with AsyncExitStack() as stack:
            name = self._seeded.choice(self._group.running())
            await stack.enter_async_context(self._group.frozen(name))
            await asyncio.sleep(hold_s)

    async def _cut_link(self, hold_s: float) -> None:
        one, other = self._seeded.sample(_BROKERS, 2)
        await self._cut_for(hold_s, [(one, other), (other, one)])

    async def _cut_one_way(self, hold_s: float) -> None:
        one, other = self._seeded.sample(_BROKERS, 2)
        await self._cut_for(hold_s, [(one, other)])

    async def _cut_for(self, hold_s: float, pairs: list[tuple[str, str]]) -> None:
        self._links.cut(*pairs)
        await asyncio.sleep(hold_s)
        self._links.heal()

    async def _slow(self, hold_s: float) -> None:
        slow = self._broker()
        self._links.slow_down(SLOW, [(other, slow) for other in _BROKERS if other != slow])
        await asyncio.sleep(hold_s)
        self._links.heal()
