"""What time it is for a cluster: not by this machine's clock alone.

What is too old is deleted for good: records, committed offsets, replicas that nobody wants. A clock
that is wrong on one machine, or is set, must not delete anything. So a process also notes what
others say the time is, and goes on from there by its monotonic clock. A broker hears it from the
controller, which knows the clocks of all brokers; whoever is elected goes by ZooKeeper's clock.
"""

from __future__ import annotations

from leadline_common.clock import Clock


class ClusterTime:
    """The time between two bounds: this machine's clock, and the time that was heard last.

    Invariant: `earliest_ms() <= latest_ms()`. All times are Unix ms.
    """

    def __init__(self, clock: Clock, heard_ms: int | None = None) -> None:
        self._clock = clock
        self._heard_at_zero_ms: int | None = None
        """What was heard, at 0 of the monotonic clock."""
        if heard_ms is not None:
            self.hear(heard_ms)

    def hear(self, time_ms: int) -> None:
        """Note what others say the time is now."""
        self._heard_at_zero_ms = time_ms - self._clock.monotonic_ms()

    def earliest_ms(self) -> int:
        """Return the earlier time: what is too old now is so by both.

        It is 0 until a time was heard: nothing is too old then.
        """
        heard_ms = self._heard_ms()
        return 0 if heard_ms is None else min(heard_ms, self._clock.wall_ms())

    def latest_ms(self) -> int:
        """Return the later time: what is of now is not older by either."""
        own_ms = self._clock.wall_ms()
        heard_ms = self._heard_ms()
        return own_ms if heard_ms is None else max(heard_ms, own_ms)

    def ahead_ms(self) -> int:
        """Return by how much this machine's clock is ahead of the time heard; 0 until one was."""
        heard_ms = self._heard_ms()
        return 0 if heard_ms is None else self._clock.wall_ms() - heard_ms

    def _heard_ms(self) -> int | None:
        if self._heard_at_zero_ms is None:
            return None
        return self._heard_at_zero_ms + self._clock.monotonic_ms()
