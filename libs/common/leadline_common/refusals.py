"""Sampling of refused requests for the audit: which are recorded in full, which are counted. Pure.

A refused request changes nothing, so anybody may send any number of them. Were each recorded, a
flood of them would write to ZooKeeper as fast as it arrives, and push changes out of the outbox.
So in each interval the first refusals of each kind are recorded in full, and the others are counted
and recorded together when the interval ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

INTERVAL_MS: Final = 10_000
FULL_PER_KEY: Final = 10
"""Refusals of one kind that are recorded in full in each interval."""
FULL_IN_ALL: Final = 40
MAX_KEYS: Final = 50
"""Kinds that are counted apart in one interval; the rest is counted together."""


class RefusalKey(NamedTuple):
    """What is counted together: the kind of request, the outcome, and the code of the error.

    `outcome` is `refused` or `dry_run`; a dry run has the code 0.
    """

    kind: str
    outcome: str
    code: int


OTHER: Final = RefusalKey("request", "refused", 0)
"""Counts what is beyond `MAX_KEYS`."""


class CountedRefusals(NamedTuple):
    """Refusals that were counted since `since_ms` instead of recorded in full."""

    key: RefusalKey
    number: int
    since_ms: int


@dataclass(eq=False, slots=True)
class RefusalSampler:
    """Decides about each refusal. Times are milliseconds of one monotonic clock."""

    _begun_ms: int = field(default=0, init=False)
    _recorded: dict[RefusalKey, int] = field(default_factory=dict, init=False)
    _counted: dict[RefusalKey, int] = field(default_factory=dict, init=False)

    def admit(self, key: RefusalKey, now_ms: int) -> bool:
        """Return whether to record this refusal in full; otherwise it has been counted."""
        if not self._counted and now_ms - self._begun_ms >= INTERVAL_MS:
            self._begin(now_ms)
        known = self._recorded.get(key, 0)
        has_room = known > 0 or len(self._recorded) < MAX_KEYS
        if has_room and known < FULL_PER_KEY and sum(self._recorded.values()) < FULL_IN_ALL:
            self._recorded[key] = known + 1
            return True
        counted = key if key in self._counted or len(self._counted) < MAX_KEYS else OTHER
        self._counted[counted] = self._counted.get(counted, 0) + 1
        return False

    def take(self, now_ms: int) -> list[CountedRefusals]:
        """Begin a new interval; return what was counted in the last one."""
        taken = [CountedRefusals(key, n, self._begun_ms) for key, n in self._counted.items()]
        self._begin(now_ms)
        return taken

    def _begin(self, now_ms: int) -> None:
        self._begun_ms = now_ms
        self._recorded.clear()
        self._counted.clear()
