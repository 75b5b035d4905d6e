"""The pending roles and stops of one broker, and how they are divided into requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import chain, islice
from typing import Final, TypeAlias

from leadline_client.wire import TopicPartition

MOST_ROLES: Final = 2_000
"""In one request. A broker takes about 20 µs for each, and serves nobody else meanwhile."""
FEW_ROLES: Final = 500
"""So many are sent in one request, as waiting for them delays nobody noticeably."""
ROLES_PER_REQUEST: Final = 1_500
"""While more changes are being written, first roles are sent in one request for each so many of
them, and one more. A broker that answers fast would get one for each write otherwise."""

MOST_STOPS: Final = 1_000
"""In one request. A broker takes two fsyncs for each that it deletes, and answers when all are."""

PendingPartitions: TypeAlias = dict[str, dict[int, None]]
"""Partition numbers by topic, in the order in which they were added."""


class PendingRoles:
    """The roles that one broker has to acknowledge: the first ones, and those that may wait.

    Clients ask leaders. So a role that begins or ends a leadership is one of the first; a broker
    that leads or follows as before may learn the new leader epoch after clients do. While more
    changes are being written, only the first roles are sent.
    """

    def __init__(self) -> None:
        self._first: PendingPartitions = {}
        self._others: PendingPartitions = {}
        self._added = 0  # Since it was last known that no more changes were coming.
        self._requests = 0

    def __len__(self) -> int:
        return sum(map(len, chain(self._first.values(), self._others.values())))

    def __bool__(self) -> bool:
        return bool(self._first or self._others)

    def __contains__(self, topic: str) -> bool:
        return topic in self._first or topic in self._others

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, numbers in chain(self._first.items(), self._others.items()):
            for number in numbers:
                yield TopicPartition(topic, number)

    def has(self, topic: str, number: int) -> bool:
        """Tell whether a role is pending."""
        return number in self._first.get(topic, ()) or number in self._others.get(topic, ())

    def add(self, topic: str, numbers: Iterable[int], *, may_wait: bool = False) -> None:
        """Add roles; one that is pending as one of the first does not wait."""
        if may_wait:
            first = self._first.get(topic, {})
            added = {number: None for number in numbers if number not in first}
            if added:
                self._others.setdefault(topic, {}).update(added)
            return
        added = dict.fromkeys(numbers)
        if added:
            self._added += len(added)
            _remove(self._others, topic, added)
            self._first.setdefault(topic, {}).update(added)

    def remove(self, topic: str, numbers: Iterable[int]) -> None:
        """Remove roles, whether they are pending or not."""
        removed = dict.fromkeys(numbers)
        _remove(self._first, topic, removed)
        _remove(self._others, topic, removed)

    def clear(self) -> None:
        """Remove all roles."""
        self._first.clear()
        self._others.clear()

    def are_due(self, *, more_coming: bool) -> bool:
        """Tell whether any role should be sent now, or only after the changes that are coming."""
        return self._first_are_due() if more_coming else bool(self)

    def take_first(
        self, *, but: Set[TopicPartition] = frozenset(), more_coming: bool = False
    ) -> PendingPartitions:
        """Remove and return what the next request holds of the first roles.

        If there are few roles altogether and no `more_coming`, these are all of them. With
        `more_coming`, these are none once there were too many requests; see `ROLES_PER_REQUEST`.
        """
        if more_coming and not self._first_are_due():
            return {}
        if not more_coming and len(self) <= FEW_ROLES:
            return self.take(but=but)
        return self._counted(take_partitions(self._first, MOST_ROLES, but), more_coming=more_coming)

    def take(
        self, *, but: Set[TopicPartition] = frozenset(), more_coming: bool = False
    ) -> PendingPartitions:
        """Remove and return what the next request holds, the first roles before others.

        These are whole topics, unless one has too many. Partitions in `but` stay. With
        `more_coming`, because more changes are being written, these are none: they would take the
        processors from the writes, and from brokers that begin to lead.
        """
        if more_coming:
            return {}
        taken = take_partitions(self._first, MOST_ROLES, but)
        left = MOST_ROLES - sum(map(len, taken.values()))
        add_partitions(taken, take_partitions(self._others, left, but))
        return self._counted(taken, more_coming=False)

    def _first_are_due(self) -> bool:
        """Tell whether to send first roles, though more changes are being written."""
        return bool(self._first) and (self._requests - 1) * ROLES_PER_REQUEST < self._added

    def _counted(self, taken: PendingPartitions, *, more_coming: bool) -> PendingPartitions:
        """Count a request while more changes are being written, and return what it holds."""
        if not more_coming:
            self._added = self._requests = 0
        elif taken:
            self._requests += 1
        return taken


def add_partitions(pending: PendingPartitions, more: PendingPartitions) -> None:
    """Add partitions to those that are pending."""
    for topic, numbers in more.items():
        pending.setdefault(topic, {}).update(numbers)


def take_partitions(
    pending: PendingPartitions, most: int, but: Set[TopicPartition]
) -> PendingPartitions:
    """Remove and return at most so many partitions, whole topics unless one has too many."""
    taken: PendingPartitions = {}
    left = most
    for topic, numbers in list(pending.items()):
        # One more than there is room for tells that the topic has too many.
        wanted = list(islice(_without(topic, numbers, but), left + 1))
        if not wanted:
            continue
        if not left or (len(wanted) > left and taken):
            break
        part = taken[topic] = dict.fromkeys(wanted[:left])
        left -= len(part)
        _remove(pending, topic, part)
    return taken


def _without(topic: str, numbers: Iterable[int], but: Set[TopicPartition]) -> Iterable[int]:
    return (n for n in numbers if TopicPartition(topic, n) not in but) if but else numbers


def _remove(pending: PendingPartitions, topic: str, numbers: dict[int, None]) -> None:
    """Remove partitions of a topic, in a time that does not depend on those that stay."""
    own = pending.get(topic)
    if own is None:
        return
    for number in numbers:
        own.pop(number, None)
    if not own:
        del pending[topic]
