"""The byte rate that moving replicas may not exceed (KIP-73, for reassignments only)."""

from __future__ import annotations

from typing import Final

from leadline_common.rpc import NO_THROTTLE

UNLIMITED: Final = 1 << 62
"""The bytes available without a throttle: more than any request asks for."""
LONGEST_DELAY_MS: Final = 500.0
"""The longest wait to suggest, because the rate may be raised or removed meanwhile."""

_BURST_MS: Final = 1_000
"""How much unused time accumulates, to make up for jitter on either side."""
_QUANTUM_MS: Final = 100
"""How much time must accumulate before bytes are available: few large responses, not many small."""


class RateQuota:
    """A token bucket that holds a rate on average.

    A caller may take more than is available, because batches are never split. The debt is
    repaid before anything is available again, so the average holds. Times are monotonic
    milliseconds. `bytes_per_s` is the rate in force, `NO_THROTTLE` for none; see `set_rate`.
    """

    __slots__ = ("_filled_at", "_level", "bytes_per_s")

    def __init__(self) -> None:
        """Start without a throttle."""
        self.bytes_per_s = NO_THROTTLE
        self._level = 0.0
        self._filled_at = 0

    @property
    def throttled(self) -> bool:
        """Whether a rate is in force."""
        return self.bytes_per_s >= 0

    def set_rate(self, bytes_per_s: int, now: int) -> None:
        """Change the rate; what was saved up is lost, and a debt is repaid at the new rate.

        Setting the same rate again changes nothing. Without a throttle there is no debt.
        """
        if bytes_per_s == self.bytes_per_s:
            return
        if self.throttled:
            self._fill(now)
        self._level = min(self._level, 0.0) if bytes_per_s >= 0 else 0.0
        self.bytes_per_s = bytes_per_s
        self._filled_at = now

    def available(self, now: int) -> int:
        """Return how many bytes may be moved now; 0 until at least a quantum is available."""
        if not self.throttled:
            return UNLIMITED
        self._fill(now)
        return int(self._level) if self._level > 0 and self._level >= self._quantum else 0

    def take(self, size: int, now: int) -> None:
        """Count `size` bytes that were moved."""
        if self.throttled:
            self._fill(now)
            self._level -= size

    def delay_ms(self, now: int) -> float:
        """Return how long to wait before asking again; at most `LONGEST_DELAY_MS`."""
        if self.available(now):
            return 0.0
        missing = max(1.0, self._quantum) - self._level
        if missing * 1_000 >= self.bytes_per_s * LONGEST_DELAY_MS:
            return LONGEST_DELAY_MS
        return missing * 1_000 / self.bytes_per_s

    @property
    def _quantum(self) -> float:
        return self.bytes_per_s * _QUANTUM_MS / 1_000

    def _fill(self, now: int) -> None:
        gained = (now - self._filled_at) * self.bytes_per_s / 1_000
        self._level = min(self._level + gained, self.bytes_per_s * _BURST_MS / 1_000)
        self._filled_at = now
