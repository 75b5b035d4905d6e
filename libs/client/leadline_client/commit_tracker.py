"""What of a partition has been consumed, and what of that is committed. Pure.

Records count as consumed when the application comes back for more, or is asked to
give their partition up and agrees: not when they are given to it, and never before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from leadline_client.membership import TopicPartition


class Progress:
    """Offsets of the next record by partition: consumed, and committed."""

    def __init__(self) -> None:
        self._given: set[TopicPartition] = set()
        self._consumed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    def begin(self, partition: TopicPartition, committed: int | None) -> None:
        """Count anew for a partition that was just taken.

        Where it begins is committed too, without a record: a restart is to begin there.
        """
        self.forget([partition])
        self._given.add(partition)
        if committed is not None:
            self._committed[partition] = committed

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Count no more for partitions that are gone."""
        for partition in partitions:
            self._given.discard(partition)
            self._consumed.pop(partition, None)
            self._committed.pop(partition, None)

    def give(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note that something of these is in the application's hands."""
        self._given.update(partitions)

    def come_back(self, position: Callable[[TopicPartition], int]) -> None:
        """Count as consumed what was given until now; `position` tells up to where."""
        positions = {partition: position(partition) for partition in self._given}
        self._consumed |= {one: offset for one, offset in positions.items() if offset >= 0}
        self._given = {one for one, offset in positions.items() if offset < 0}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take note of what the coordinator has."""
        self._committed.update(offsets)

    def due(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return what is consumed of `partitions` and not committed yet."""
        found = ((one, self._consumed.get(one)) for one in partitions)
        return {
            one: offset
            for one, offset in found
            if offset is not None and offset != self._committed.get(one)
        }
