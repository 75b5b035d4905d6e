"""The levels of a group whose members asked for different topics. Pure.

The level of a thread is its number of partitions. Of all assignments, those with the least sum of
squares of levels are the most balanced: no chain of moves could level them further. In all of
them, a member's threads have the same level, or that level and the next. `lowest_levels` returns
it. An assignment is one of them if and only if each member keeps within these two levels and each
partition goes to a member with the lowest level of all that asked for its topic.

Method: decomposition (Groenevelt 1991; Frank and Murota, "Decreasing minimization on M-convex
sets"). Let as many partitions as possible flow to the members, none beyond some level. The topics
that then have partitions left over, and all members that asked for these, are above this level or
at it. The rest is below it or at it, and gets nothing else. Both parts are divided further, until
each knows its level to within one. Members with the same subscriptions are as one with all their
threads, and topics with the same subscribers as one topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from leadline_coordinator.domain.assignors.flow import Network
from leadline_coordinator.domain.assignors.group_spec import GroupSpec


class _Part(msgspec.Struct, frozen=True):
    """Classes of members and of topics that concern only each other, and limits of their level."""

    members: Sequence[int]
    topics: Sequence[int]
    low: int
    high: int


class _Divider:
    """Divides a group into parts of one level; classes of members and of topics are numbers."""

    def __init__(self, group: GroupSpec) -> None:
        self._classes: dict[tuple[str, ...], int] = {}
        self._threads: list[int] = []
        for member, wanted in group.subscriptions.items():
            if self._classes.setdefault(wanted, len(self._threads)) == len(self._threads):
                self._threads.append(0)
            self._threads[self._classes[wanted]] += group.threads[member]
        by_topic: dict[str, list[int]] = {topic: [] for topic in group.topics}
        for wanted, number in self._classes.items():
            for topic in wanted:
                by_topic[topic].append(number)
        counts: dict[tuple[int, ...], int] = {}
        for topic, subscribers in by_topic.items():
            alike = tuple(subscribers)
            counts[alike] = counts.get(alike, 0) + group.topics[topic]
        self._subscribers = list(counts)
        self._counts = list(counts.values())

    def levels(self) -> dict[tuple[str, ...], int]:
        """Return the lowest level of a thread with each subscription."""
        found = [0] * len(self._threads)
        members, topics = range(len(self._threads)), range(len(self._counts))
        parts = [_Part(members, topics, 0, max(1, sum(self._counts)))]
        while parts:
            part = parts.pop()
            if part.high - part.low > 1:
                parts += [one for one in self._divide(part) if one.members]
                continue
            for member in part.members:
                found[member] = part.low
        return dict(zip(self._classes, found, strict=True))

    def _divide(self, part: _Part) -> tuple[_Part, _Part]:
        """Return what is at a level or above it, and what is at this level or below it."""
        total = sum(self._counts[topic] for topic in part.topics)
        mean = total // sum(self._threads[member] for member in part.members)
        level = min(max(mean, part.low + 1), part.high - 1)
        network = self._network(part, level)
        network.solve()
        reached = network.reachable()
        halves = []
        for is_above, low, high in ((True, level, part.high), (False, part.low, level)):
            members = [m for node, m in enumerate(part.members) if reached[node] is is_above]
            topics = [
                topic
                for node, topic in enumerate(part.topics, len(part.members))
                if reached[node] is is_above
            ]
            halves.append(_Part(members, topics, low, high))
        return halves[0], halves[1]

    def _network(self, part: _Part, level: int) -> Network:
        """Return a network from the topics to the members, with room up to a level."""
        network = Network(len(part.members) + len(part.topics))
        nodes = [-1] * len(self._threads)
        for node, member in enumerate(part.members):
            nodes[member] = node
            network.excess[node] = -level * self._threads[member]
        for node, topic in enumerate(part.topics, len(part.members)):
            count = network.excess[node] = self._counts[topic]
            for member in self._subscribers[topic]:
                if nodes[member] >= 0:
                    network.add(node, nodes[member], room=count)
        return network


def lowest_levels(group: GroupSpec) -> Mapping[str, int]:
    """Return the level of each member's least loaded thread in the most balanced assignments."""
    levels = _Divider(group).levels()
    return {member: levels[wanted] for member, wanted in group.subscriptions.items()}
