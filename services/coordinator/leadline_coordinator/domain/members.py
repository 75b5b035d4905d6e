"""A member of a group, as the coordinator knows it; and one that is gone but may still be reading.

`held` is what a member may be consuming: from the moment in which a Start is sent until
a Stop is answered, or until it cannot be consuming any more, by its word, its end, or
the clock (R16). Nothing that is held by one is started at another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from leadline_coordinator.domain.member_session import MemberSession
from leadline_coordinator.domain.records import Partition, Subscription

NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in ms and counts, from the settings of the same names."""

    ping_interval_ms: int = 1_000
    stop_limit_ms: int = 3_000
    evict_limit_ms: int = 4_000
    reconnect_grace_ms: int = 1_000
    static_grace_ms: int = 30_000
    initial_delay_ms: int = 200
    answer_timeout_ms: int = 2_000
    max_size: int = 5_000
    max_retries: int = 4


@dataclass(slots=True)
class Member:
    """A member. `line` is None while it has no channel; then the two times say how long.

    `rest_at_ms`: from then on it is certain to have stopped. `leave_at_ms`: from then on
    it is no member any more. `told` is the generation that it was last told, `confirmed`
    the one that it last answered; it commits under either.
    """

    id: str
    subscription: Subscription
    line: MemberSession | None = None
    connection: int = 0
    """The latest connection that was its channel; they are numbered as they are opened."""
    held: set[Partition] = field(default_factory=set)
    rest_at_ms: int = 0
    leave_at_ms: int = 0
    told: int = NO_GENERATION
    confirmed: int = NO_GENERATION
    started: bool = False
    """Whether it has answered a Start of what it now has."""
    outdated: bool = False
    """Whether the last Start, answered or not, is not of what it has now, or will have next."""

    def outdate(self) -> None:
        """Note that it is to be sent another Start; it may yet answer the last one."""
        self.started, self.outdated = False, True

    def certain_rest_ms(self, limits: Limits) -> int:
        """Return when it will certainly have stopped if nothing more is heard of it."""
        if self.line is None:
            return self.rest_at_ms
        return self.line.acknowledged_at_ms + limits.evict_limit_ms


@dataclass(slots=True)
class PendingEviction:
    """What a former member may still be consuming, until `release_at_ms`."""

    held: set[Partition]
    release_at_ms: int
