"""How long a process may act on a ZooKeeper session that it cannot renew (rule R10).

Invariant: while `valid` answers True, the server has not expired the session,
provided that clocks run at the same rate within the kept third.

Time is counted from when the last *answered* heartbeat was *sent*: the server
renewed the session after that moment, and an answer may have waited in the
socket buffer through a long pause of this process. Losing the connection
starts no new grace.
"""

from __future__ import annotations


class SessionLease:
    """The lease of one session. Times are milliseconds of one monotonic clock."""

    __slots__ = ("_length_ms", "_valid_until_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self._length_ms = session_timeout_ms * 2 / 3
        self._valid_until_ms = float("-inf")

    @property
    def valid_until_ms(self) -> float:
        """The moment from which this process must not act; minus infinity at first."""
        return self._valid_until_ms

    def answered(self, sent_ms: float) -> None:
        """Note that a heartbeat sent at `sent_ms` was answered. Late news changes nothing."""
        self._valid_until_ms = max(self._valid_until_ms, sent_ms + self._length_ms)

    def revoke(self) -> None:
        """End the lease for good: the session is known to be over."""
        self._length_ms = float("-inf")
        self._valid_until_ms = float("-inf")

    def valid(self, now_ms: float) -> bool:
        """Tell whether the process may still act at `now_ms`."""
        return now_ms < self._valid_until_ms
