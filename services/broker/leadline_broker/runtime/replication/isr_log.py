"""Log lines of ISR changes: one for all partitions that change alike at one moment.

After the failure of a broker thousands of partitions do. A line for each would hold up the event
loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import structlog

from leadline_broker.domain.effects import IsrProposal
from leadline_client.wire import TopicPartition

logger = structlog.get_logger(__name__)

_Change: TypeAlias = tuple[tuple[int, ...], str]
"""The new ISR, and why."""


class IsrLog:
    """Collects changes until `later(flush)` calls back, which is soon."""

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self._changes: dict[_Change, dict[str, list[int]]] = {}

    def add(self, topic_partition: TopicPartition, proposal: IsrProposal) -> None:
        """Note that ZooKeeper has the proposed ISR of a partition."""
        if not self._changes:
            self._later(self.flush)
        alike = self._changes.setdefault((proposal.isr, proposal.reason), {})
        alike.setdefault(topic_partition.topic, []).append(topic_partition.partition)

    def flush(self) -> None:
        """Log what has been collected."""
        changes, self._changes = self._changes, {}
        for (isr, reason), partitions in changes.items():
            logger.info("ISR changed", isr=isr, reason=reason, partitions=partitions)
