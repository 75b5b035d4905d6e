"""Partitions that failed, and when to ask for them again."""

from __future__ import annotations

from collections.abc import Callable

from leadline_broker.runtime.backoff import Backoff
from leadline_broker.runtime.ports import ReplicaKey
from leadline_common.clock import Clock


class Penalties:
    """Holds failed partitions back; `backoff()` makes the pauses of one."""

    def __init__(self, clock: Clock, backoff: Callable[[], Backoff]) -> None:
        self._clock = clock
        self._backoff = backoff
        self._held: dict[ReplicaKey, float] = {}
        self._backoffs: dict[ReplicaKey, Backoff] = {}

    def impose(self, key: ReplicaKey) -> None:
        """Hold the partition back, the longer the more often it failed in a row."""
        backoff = self._backoffs.setdefault(key, self._backoff())
        self._held[key] = self._clock.monotonic_ms() + backoff.next_ms()

    def lift(self, key: ReplicaKey) -> None:
        """Forget the partition's failures."""
        if self._backoffs:
            self._held.pop(key, None)
            self._backoffs.pop(key, None)

    def holds(self, key: ReplicaKey) -> bool:
        """Tell whether the partition is held back."""
        return key in self._held

    def due(self) -> list[ReplicaKey]:
        """Release the partitions whose time has come, and return them."""
        if not self._held:
            return []
        now = self._clock.monotonic_ms()
        due = [key for key, at in self._held.items() if at <= now]
        for key in due:
            del self._held[key]
        return due

    def next_due_ms(self) -> float | None:
        """Return how long until the next one is due, None if none is held."""
        if not self._held:
            return None
        return max(1.0, min(self._held.values()) - self._clock.monotonic_ms())
