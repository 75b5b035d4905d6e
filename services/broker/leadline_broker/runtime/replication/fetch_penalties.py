"""Delays of partitions whose fetches fail, so that one of them holds up no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog

from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.backoff import Backoff
from leadline_client.errors import LeadlineError, StorageFailed
from leadline_common.clock import Clock
from leadline_common.log_rate import LogRate

logger = structlog.get_logger(__name__)

T = TypeVar("T")


class Penalties:
    """Delays the next fetch of partitions that failed, longer after each failure in a row.

    `not_begun` says what partitions lack, such as space, to begin again where their leader does.
    """

    def __init__(self, leader: int, clock: Clock, backoff: Callable[[], Backoff]) -> None:
        self._leader = leader
        self._refusals = LogRate()
        self._clock = clock
        self._new_backoff = backoff
        self._due_ms: dict[ReplicaKey, float] = {}
        self._backoffs: dict[ReplicaKey, Backoff] = {}
        self.not_begun: dict[ReplicaKey, str] = {}

    def refuse(self, partition: Partition, error: LeadlineError) -> None:
        """Delay a partition that has refused what its leader sent, and log why once in a while.

        A full disk refuses the records of all partitions.
        """
        self.impose(partition.key)
        if isinstance(error, StorageFailed) and partition.log.lacks_records:
            self.not_begun[partition.key] = (
                f"{partition.topic}-{partition.partition}: {error.message}"
            )
        kind, now_ms = type(error).__name__, self._clock.monotonic_ms()
        if (more_before := self._refusals.admit(kind, now_ms)) is not None:
            logger.warning(
                "fetched records refused",
                topic=partition.topic,
                partition=partition.partition,
                leader=self._leader,
                reason=error.message,
                more_before=more_before,
            )

    def impose(self, key: ReplicaKey) -> None:
        """Delay the partition."""
        backoff = self._backoffs.setdefault(key, self._new_backoff())
        self._due_ms[key] = self._clock.monotonic_ms() + backoff.next_ms()

    def lift(self, key: ReplicaKey) -> None:
        """Forget the partition's failures."""
        if self._backoffs:
            self._due_ms.pop(key, None)
            self._backoffs.pop(key, None)
            self.not_begun.pop(key, None)

    def delays(self, key: ReplicaKey) -> bool:
        """Tell whether the partition is delayed."""
        return key in self._due_ms

    def without_delayed(self, partitions: Mapping[ReplicaKey, T]) -> dict[ReplicaKey, T]:
        """Return the partitions that are not delayed."""
        if not self._due_ms:
            return dict(partitions)
        return {key: value for key, value in partitions.items() if key not in self._due_ms}

    def due(self) -> list[ReplicaKey]:
        """Return the partitions whose delay is over, and end it."""
        now = self._clock.monotonic_ms()
        due = [key for key, due_ms in self._due_ms.items() if due_ms <= now]
        for key in due:
            del self._due_ms[key]
        return due

    def next_due_ms(self) -> float | None:
        """Return the time until the next delay is over, or None if there is none."""
        if not self._due_ms:
            return None
        return max(1.0, min(self._due_ms.values()) - self._clock.monotonic_ms())
