"""What a consumer has consumed and committed of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from leadline_client.wire import LogPosition, TopicPartition


class CommitTracker:
    """Knows of each partition the positions of the next record: consumed, and committed.

    Records count as consumed when the application polls again, or when it is asked to give up
    their partition and agrees: not when `poll` returns them, and never before.
    """

    def __init__(self) -> None:
        self._delivered: set[TopicPartition] = set()
        self._consumed: dict[TopicPartition, LogPosition] = {}
        self._committed: dict[TopicPartition, LogPosition] = {}

    def add(self, topic_partition: TopicPartition, committed: LogPosition | None) -> None:
        """Track a new partition, from its committed position on.

        Its first position counts as delivered, so that it is committed even without a record: after
        a restart the consumer should begin there again.
        """
        self.remove([topic_partition])
        self._delivered.add(topic_partition)
        if committed is not None:
            self._committed[topic_partition] = committed

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Stop tracking partitions."""
        for topic_partition in topic_partitions:
            self._delivered.discard(topic_partition)
            self._consumed.pop(topic_partition, None)
            self._committed.pop(topic_partition, None)

    def mark_delivered(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Note that the application has got records of these partitions, or a new position."""
        self._delivered.update(topic_partitions)

    def mark_consumed(self, position: Callable[[TopicPartition], LogPosition | None]) -> None:
        """Count all delivered records as consumed; `position` returns the next one, if known."""
        positions = {one: position(one) for one in self._delivered}
        self._consumed |= {one: found for one, found in positions.items() if found is not None}
        self._delivered = {one for one, found in positions.items() if found is None}

    def mark_committed(self, positions: Mapping[TopicPartition, LogPosition]) -> None:
        """Note positions that the coordinator has committed."""
        self._committed.update(positions)

    def uncommitted(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogPosition]:
        """Return the consumed positions of these partitions that are not committed yet."""
        consumed = ((one, self._consumed.get(one)) for one in topic_partitions)
        return {
            one: position
            for one, position in consumed
            if position is not None and position != self._committed.get(one)
        }
