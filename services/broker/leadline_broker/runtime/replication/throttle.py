"""The throttle of moving replicas (KIP-73), at the rate that the controller sets."""

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
    """Limits what this broker sends, or receives, for moving replicas.

    Owned by the event loop. While it is `held` nothing may be moved, because the controller
    has not set the rate yet. `on_moved(size)` is called for all bytes, throttled or not.
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
        """Change the rate; `NO_THROTTLE` removes it."""
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
        """Return how long to wait before anything may be moved; 0 if something may be moved now."""
        return _HOLD_CHECK_MS if self.held else self._quota.delay_ms(self._clock.monotonic_ms())


class MovingThrottle:
    """Both sides of the throttle, as set by heartbeat responses. Owned by the event loop.

    The command to add replicas may arrive before the throttle that belongs to it. So an
    unthrottled broker moves nothing until the response to a later heartbeat.
    """

    def __init__(self, sending: Throttle, receiving: Throttle) -> None:
        self.sending = sending
        self.receiving = receiving
        self._commands = 0
        self._commands_at_heartbeat = 0

    @property
    def bytes_per_s(self) -> int:
        """The rate in force; `NO_THROTTLE` for none."""
        return self.sending.bytes_per_s

    def on_replicas_added(self) -> None:
        """Hold moving replicas until the controller has set the rate."""
        self._commands += 1
        self._hold(held=self.bytes_per_s == NO_THROTTLE)

    def on_heartbeat_sent(self) -> None:
        """Record that a heartbeat is being sent."""
        self._commands_at_heartbeat = self._commands

    def on_heartbeat_response(self, bytes_per_s: int) -> None:
        """Apply the rate in the response to that heartbeat."""
        if bytes_per_s != self.bytes_per_s:
            logger.info("throttle of moving replicas changed", bytes_per_s=bytes_per_s)
        for side in (self.sending, self.receiving):
            side.set_rate(bytes_per_s)
        if self._commands_at_heartbeat == self._commands:
            self._hold(held=False)

    def _hold(self, *, held: bool) -> None:
        self.sending.held = self.receiving.held = held
