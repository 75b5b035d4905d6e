"""What all parts of a simulated cluster share: virtual time, chance, counters and the trace."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.runtime_simulation.event_loop import SimulatedLoop


class World:
    """Time, chance, the counters of what a run reached, and its trace."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = SimulatedLoop()
        self.sometimes: Counter[str] = Counter()
        self.trace: list[str] = []
        self.tracing = tracing
        self.problems: list[str] = []
        self.failures: list[str] = []

    def chance(self, probability: float) -> bool:
        """Tell whether something happens that happens with this probability."""
        return probability > 0 and self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        """Return a number between two."""
        return low + (high - low) * self.random.random()

    def reached(self, what: str) -> None:
        """Count that the run reached an interesting state."""
        self.sometimes[what] += 1
        self.note("* %s", what)

    def note(self, text: str, *values: object) -> None:
        """Add a line to the trace."""
        if self.tracing:
            self.trace.append(f"{self.loop.now_s:10.4f}  {text % values if values else text}")
