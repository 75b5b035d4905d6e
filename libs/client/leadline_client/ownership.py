"""Under which ownership a consumer has read what it commits (rule R16). Pure.

A member may lose a partition and get it again before its application has heard of either. In
between another member may have committed further offsets. An offset of the earlier ownership must
then not be committed under the later one, which the coordinator would accept. The same holds when
the topic is deleted and created again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final

from leadline_client.wire import TopicPartition

_NEVER: Final = 0


class Ownership:
    """Numbers each time that a partition is assigned to this member.

    The application knows the number that held when it was told of the assignment.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._present: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}
        self._restarted: set[TopicPartition] = set()

    def begin(self, topic_partition: TopicPartition) -> None:
        """Note that a partition is assigned to this member, which did not own it before."""
        self._present[topic_partition] = next(self._numbers)

    def end(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Note that this member has lost partitions."""
        for one in topic_partitions:
            self._present.pop(one, None)

    def tell(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Note that the application hears that partitions are assigned to it."""
        for one in topic_partitions:
            self._told[one] = self._present.get(one, _NEVER)

    def restart(self, topic_partition: TopicPartition) -> None:
        """Note that the topic was created again: what the application has is of another one."""
        if topic_partition in self._present:
            self.begin(topic_partition)
            self._restarted.add(topic_partition)

    def tell_restarted(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Note that what the application has, or commits, is of the topics that there are now."""
        restarted = self._restarted.intersection(topic_partitions)
        self.tell(restarted)
        self._restarted -= restarted

    def known(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the number that the application knows of each partition."""
        return {one: self._told.get(one, _NEVER) for one in topic_partitions}

    def lost_of(self, known: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return the partitions that were lost since the application heard of them.

        They may have been assigned again. What this member never owned is for the coordinator to
        judge, and not among them.
        """
        return {one for one, number in known.items() if number != self._present.get(one, _NEVER)}
