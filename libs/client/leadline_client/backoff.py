"""Exponential back-off with jitter. Pure: the random number is an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

_MOST_DOUBLINGS: Final = 30


def backoff_pause(failures: int, *, first: float, longest: float, random: float) -> float:
    """Return how long to wait after `failures` (1 or more) failures in a row.

    The pause begins at `first` and doubles with each failure up to `longest`, in the unit of these
    two. `random`, a number in [0, 1), then picks a point in its upper half, so that clients that
    failed together do not retry together.
    """
    ceiling: float = min(longest, first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
    return ceiling * (0.5 + 0.5 * random)


@dataclass(slots=True)
class Backoff:
    """Counts the failures in a row of one loop, and gives its pauses in milliseconds.

    `random` returns numbers in [0, 1), as `random.Random.random` does.
    """

    random: Callable[[], float]
    _: KW_ONLY
    first_ms: int
    longest_ms: int
    failures: int = 0

    def next_ms(self) -> float:
        """Count one more failure, and return how long to wait after it."""
        self.failures += 1
        return backoff_pause(
            self.failures, first=self.first_ms, longest=self.longest_ms, random=self.random()
        )

    def reset(self) -> None:
        """Start again from the first pause, after a success."""
        self.failures = 0
