"""Virtual time: one heap of events, one source of chance, and processes that die or freeze.

Everything in the simulator happens in an event of this heap, in the order of
(time, number), so a seed alone decides a run. Times are virtual milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from leadline_broker.domain.rules import Rules

_NOISE = ("produce", "fetch", "grant", "late fetch")
"""Counters that would fill a trace."""

Action = Callable[..., object]


class Process:
    """One run of one program: it ends for ever when killed, and may be frozen meanwhile.

    Events that belong to a dead process never happen; those of a frozen one
    happen when it goes on.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused = False
        self.backlog: list[tuple[Action, tuple[Any, ...]]] = []

    def after(self, delay: float, action: Action, *args: Any) -> None:
        """Run `action` in `delay` ms, if this process still lives then."""
        self.world.schedule(delay, self, action, *args)

    def kill(self) -> None:
        """End the process at once, as by kill -9."""
        self.alive = False
        self.backlog.clear()

    def pause(self) -> None:
        """Freeze the process, as by SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        """Let the process go on: what it missed happens now, in order."""
        self.paused = False
        backlog, self.backlog = self.backlog, []
        for action, args in backlog:
            self.world.schedule(0, self, action, *args)


class World:
    """The clock, the event heap, chance, the counters of what was reached, and the trace."""

    def __init__(self, seed: int, rules: Rules, *, tracing: bool = False) -> None:
        self.seed = seed
        self.rules = rules
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.sometimes: Counter[str] = Counter()
        self.trace: list[str] = []
        self.tracing = tracing
        self._heap: list[tuple[float, int, Process | None, Action, tuple[Any, ...]]] = []
        self._number = 0

    @property
    def now_ms(self) -> int:
        """The time as the services know it."""
        return int(self.now)

    def schedule(self, delay: float, owner: Process | None, action: Action, *args: Any) -> None:
        """Run `action` in `delay` ms; with an owner, only while it lives."""
        self._number += 1
        heappush(self._heap, (self.now + delay, self._number, owner, action, args))

    def chance(self, probability: float) -> bool:
        """Tell whether something happens that happens with this probability."""
        return probability > 0 and self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        """Return a time between two."""
        return low + (high - low) * self.random.random()

    def reached(self, what: str) -> None:
        """Count that the run reached an interesting state (a "sometimes" counter)."""
        self.sometimes[what] += 1
        if self.tracing and not what.startswith(_NOISE):
            self.trace.append(f"{self.now:8.1f}  * {what}")

    def note(self, text: str, *values: Any) -> None:
        """Add a line to the trace."""
        if self.tracing:
            self.trace.append(f"{self.now:8.1f}  {text % values if values else text}")

    def run(self, until: float, stop: Callable[[], bool] | None = None) -> bool:
        """Run events up to a time; end early, and answer True, as soon as `stop` says so."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, owner, action, args = heappop(heap)
            if owner is not None:
                if not owner.alive:
                    continue
                if owner.paused:
                    owner.backlog.append((action, args))
                    continue
            self.steps += 1
            action(*args)
            if stop is not None and stop():
                return True
        self.now = until
        return False
