"""Which of many equal log lines to write. Pure: time is an argument."""

from __future__ import annotations

from typing import Final

LOG_EVERY_MS: Final = 10_000


class LogRate:
    """Admits the first line of each kind, and then at most one in `every_ms` milliseconds.

    There are few kinds: each one is remembered.
    """

    def __init__(self, every_ms: int = LOG_EVERY_MS) -> None:
        self._every_ms = every_ms
        self._logged: dict[str, tuple[float, int]] = {}
        """When the last line of a kind was admitted, and how many were not since."""

    def admit(self, kind: str, now_ms: float) -> int | None:
        """Return how many lines of this kind were left out before this one; None: leave it out.

        `now_ms` is of one monotonic clock.
        """
        last_ms, left_out = self._logged.get(kind, (now_ms - self._every_ms, 0))
        if now_ms - last_ms < self._every_ms:
            self._logged[kind] = (last_ms, left_out + 1)
            return None
        self._logged[kind] = (now_ms, 0)
        return left_out
