"""The throttle of moving replicas (KIP-73): what the controller says, against the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from leadline_broker.domain.throttle import RateQuota
from leadline_common.clock import Clock
from leadline_common.rpc import NO_THROTTLE

logger = structlog.get_logger(__name__)

_HOLD_CHECK_MS: Final = 20.0


class Throttle:
    """What this broker may send, or receive, for moving replicas.

    Owned by the event loop. While it is `held` nothing may be moved: the controller
    has not said yet how much. `on_moved(size)` hears of every byte, throttled or not.
    """

    def __init__(self, clock: Clock, on_moved: Callable[[int], None]) -> None:
        self.held = False
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
        return 0 if self.held else self._quota.available(self._clock.monotonic_ms())

    def take(self, size: int) -> None:
        """Count `size` bytes that were moved."""
        if size:
            self._quota.take(size, self._clock.monotonic_ms())
            self._on_moved(size)

    def delay_ms(self) -> float:
        """Return how long to wait before anything may be moved; 0 when something may be."""
        return _HOLD_CHECK_MS if self.held else self._quota.delay_ms(self._clock.monotonic_ms())


class MovingThrottle:
    """Both sides of the throttle, as heartbeats bring it. Owned by the event loop.

    The order to add replicas may be here before the throttle that goes with it: what
    is not throttled then waits for the answer to a heartbeat that was sent after it.
    """

    def __init__(self, sending: Throttle, receiving: Throttle) -> None:
        self.sending = sending
        self.receiving = receiving
        self._orders = 0
        self._asked_after = 0

    @property
    def bytes_per_s(self) -> int:
        """The rate in force; `NO_THROTTLE` for none."""
        return self.sending.bytes_per_s

    def begin(self) -> None:
        """Hold what is about to move, until the controller has said how fast it may."""
        self._orders += 1
        self._hold(held=self.bytes_per_s == NO_THROTTLE)

    def asking(self) -> None:
        """Note that a heartbeat is being sent."""
        self._asked_after = self._orders

    def heard(self, bytes_per_s: int) -> None:
        """Go by the answer to that heartbeat."""
        if bytes_per_s != self.bytes_per_s:
            logger.info("throttle of moving replicas", bytes_per_s=bytes_per_s)
        for side in (self.sending, self.receiving):
            side.set_rate(bytes_per_s)
        if self._asked_after == self._orders:
            self._hold(held=False)

    def _hold(self, *, held: bool) -> None:
        self.sending.held = self.receiving.held = held
