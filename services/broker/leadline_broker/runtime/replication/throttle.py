"""The throttle of moving replicas (KIP-73), at the rates that the controller sets for each task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from leadline_broker.domain.state import ReplicaKey
from leadline_broker.domain.throttle import RateQuota
from leadline_common.clock import Clock
from leadline_common.rpc import NO_THROTTLE, MovingRate

logger = structlog.get_logger(__name__)

UNTHROTTLED: Final = ""
"""The group of all moving replicas while nothing is throttled."""
UNLISTED: Final = "?"
"""The group of moving replicas that the controller has not given a rate yet; they wait."""
_HOLD_CHECK_MS: Final = 20.0


class Throttle:
    """Limits what this broker sends, or receives, for moving replicas: each group has a rate.

    Owned by the event loop. While it is `held` nothing may be moved, because the controller
    has not set the rates yet. `on_moved(size)` is called for all bytes, throttled or not.
    """

    def __init__(self, clock: Clock, on_moved: Callable[[int], None]) -> None:
        self.held = False
        self._quotas: dict[str, RateQuota] = {}
        self._clock = clock
        self._on_moved = on_moved

    def set_rates(self, rates: Mapping[str, int]) -> None:
        """Replace the rates of all groups; a rate that stays keeps what has accumulated."""
        now = self._clock.monotonic_ms()
        self._quotas = {group: self._quotas.get(group) or RateQuota() for group in rates}
        for group, bytes_per_s in rates.items():
            self._quotas[group].set_rate(bytes_per_s, now)

    def available(self, group: str) -> int:
        """Return how many bytes of a group may be moved now."""
        return 0 if self._waits(group) else self._quota(group).available(self._now)

    def take(self, group: str, size: int) -> None:
        """Count `size` bytes of a group that were moved."""
        if size:
            self._quota(group).take(size, self._now)
            self._on_moved(size)

    def delay_ms(self, group: str) -> float:
        """Return how long to wait before a group may move anything; 0 if it may now."""
        return _HOLD_CHECK_MS if self._waits(group) else self._quota(group).delay_ms(self._now)

    @property
    def _now(self) -> int:
        return self._clock.monotonic_ms()

    def _waits(self, group: str) -> bool:
        return self.held or group == UNLISTED

    def _quota(self, group: str) -> RateQuota:
        """Return the quota of a group; one whose task has just ended is not limited any more."""
        return self._quotas.get(group) or RateQuota()


class MovingThrottle:
    """Both sides of the throttle, as set by heartbeat responses. Owned by the event loop.

    The command to add replicas may arrive before the rates that belong to it. So an
    unthrottled broker moves nothing until the response to a later heartbeat, and a throttled
    one moves no replica that the controller has not listed. `on_regrouped()` is called when
    replicas may have come into another group.
    """

    def __init__(self, sending: Throttle, receiving: Throttle) -> None:
        self.sending = sending
        self.receiving = receiving
        self.on_regrouped: Callable[[], None] = lambda: None
        self._moving: list[MovingRate] | None = None
        self._groups: dict[ReplicaKey, str] = {}
        self._commands = 0
        self._commands_at_heartbeat = 0

    @property
    def bytes_per_s(self) -> int:
        """The sum of the rates in force; `NO_THROTTLE` if a moving replica has none."""
        rates = [row.bytes_per_s for row in self._moving or ()]
        return NO_THROTTLE if self._moving is None or NO_THROTTLE in rates else sum(rates)

    def group_of(self, key: ReplicaKey) -> str:
        """Return the group that a moving replica belongs to: its task."""
        return UNTHROTTLED if self._moving is None else self._groups.get(key, UNLISTED)

    def on_replicas_added(self) -> None:
        """Hold moving replicas until the controller has set the rates."""
        self._commands += 1
        self._hold_until_listed()

    def on_heartbeat_sent(self) -> None:
        """Record that a heartbeat is being sent."""
        self._commands_at_heartbeat = self._commands

    def on_heartbeat_response(self, moving: list[MovingRate] | None) -> None:
        """Apply the rates in the response to that heartbeat."""
        if moving != self._moving:
            self._apply(moving)
        self._hold_until_listed()

    def _apply(self, moving: list[MovingRate] | None) -> None:
        rates = {row.task: row.bytes_per_s for row in moving or ()}
        logger.info("throttle of moving replicas changed", bytes_per_s=rates)
        self._moving = moving
        self._groups = dict(_grouped(moving or ()))
        for side in (self.sending, self.receiving):
            side.set_rates(rates)
        self.on_regrouped()

    def _hold_until_listed(self) -> None:
        held = self._moving is None and self._commands_at_heartbeat != self._commands
        self.sending.held = self.receiving.held = held


def _grouped(moving: Iterable[MovingRate]) -> Iterable[tuple[ReplicaKey, str]]:
    for row in moving:
        for topic_id, partitions in row.partitions.items():
            for number in partitions:
                yield (topic_id, number), row.task
