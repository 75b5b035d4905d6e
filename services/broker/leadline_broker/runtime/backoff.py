"""Waiting longer after each failure, with jitter so that many do not try again at once."""

from __future__ import annotations

from random import Random


class Backoff:
    """Exponentially growing pauses in milliseconds, each jittered to 50-100 %."""

    __slots__ = ("_first_ms", "_longest_ms", "_random", "failures")

    def __init__(self, random: Random, *, first_ms: int, longest_ms: int) -> None:
        self._random = random
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self.failures = 0

    def next_ms(self) -> float:
        """Return how long to wait after one more failure."""
        ceiling = min(self._longest_ms, self._first_ms * 2.0 ** min(self.failures, 16))
        self.failures += 1
        return ceiling * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin anew after a success."""
        self.failures = 0
