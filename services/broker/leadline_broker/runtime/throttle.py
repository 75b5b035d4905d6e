"""The throttle of moving replicas, against the clock."""

from __future__ import annotations

from collections.abc import Callable

from leadline_broker.domain.throttle import RateQuota
from leadline_common.clock import Clock


class Throttle:
    """What this broker may send, or receive, for moving replicas (KIP-73).

    Owned by the event loop. `on_moved(size)` hears of every byte, throttled or not.
    """

    def __init__(self, clock: Clock, on_moved: Callable[[int], None]) -> None:
        self._quota = RateQuota()
        self._clock = clock
        self._on_moved = on_moved

    @property
    def bytes_per_s(self) -> int:
        """The rate in force; `NO_THROTTLE` for none."""
        return self._quota.bytes_per_s

    def set_rate(self, bytes_per_s: int) -> None:
        """Hold another rate from now on; `NO_THROTTLE` lifts it."""
        self._quota.set_rate(bytes_per_s, self._clock.monotonic_ms())

    def available(self) -> int:
        """Return how many bytes may be moved now."""
        return self._quota.available(self._clock.monotonic_ms())

    def take(self, size: int) -> None:
        """Count `size` bytes that were moved."""
        if size:
            self._quota.take(size, self._clock.monotonic_ms())
            self._on_moved(size)

    def delay_ms(self) -> float:
        """Return how long to wait before anything may be moved; 0 when something may be."""
        return self._quota.delay_ms(self._clock.monotonic_ms())
