"""A token bucket that may go into debt. Pure: times are monotonic milliseconds.

A request is admitted as a whole while anything is left, and may take more than that: otherwise
none could be larger than the quota. Nothing is admitted until the debt is repaid, so that the
average holds. All numbers are whole ones, in thousandths, so that nothing is lost by rounding.
"""

from __future__ import annotations

from typing import Final

BURST_S: Final = 10
"""The seconds whose unused quota can be used at once, as in Kafka (ten whole windows of one)."""
_THOUSANDTHS: Final = 1_000


class TokenBucket:
    """What one user has left of one quota; at first a whole burst. `rate` is per second, above 0.

    `used` is what was taken since the bucket was made. `owner_since` is when its user was created.
    """

    __slots__ = ("_filled_at", "_level", "owner_since", "rate", "used")

    def __init__(self, rate: int, now: int, owner_since: int = 0) -> None:
        self.rate = rate
        self.owner_since = owner_since
        self.used = 0
        self._level = self._full
        self._filled_at = now

    def set_rate(self, rate: int, now: int) -> None:
        """Change the rate; a debt is repaid at the new one, and no more is left than its burst."""
        if rate != self.rate:
            self._fill(now)
            self.rate = rate
            self._level = min(self._level, self._full)

    def wait_ms(self, now: int) -> int:
        """Return after how many ms a request is admitted: 0 if it is at once."""
        self._fill(now)
        missing = 1 - self._level
        return max(0, -(-missing // self.rate))

    def take(self, amount: int, now: int) -> None:
        """Take something, even if less is left."""
        self._fill(now)
        self._level -= amount * _THOUSANDTHS
        self.used += amount

    @property
    def _full(self) -> int:
        return self.rate * BURST_S * _THOUSANDTHS

    def _fill(self, now: int) -> None:
        if now > self._filled_at:
            # A rate of one per second is one thousandth per ms.
            self._level = min(self._full, self._level + self.rate * (now - self._filled_at))
            self._filled_at = now
