"""The input of the assignors: members in order, their subscriptions, and what they had.

Everything is sorted here, so that the same group always gets the same assignment: topics
by name, partitions by number, members by id. A member with an instance id (static
membership, KIP-345) is sorted by that instead, before all others. So it keeps its place
when it restarts under a new member id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import starmap

import msgspec

from leadline_client.wire import TopicPartition

Assignment = dict[str, list[TopicPartition]]
"""What each member reads, in order."""

NO_GENERATION = -1
"""The generation of a claim that states none; it is lower than any other."""


class GroupSpec(msgspec.Struct, frozen=True):
    """A group, in order. `members` are all members, also those without a topic."""

    members: tuple[str, ...]
    topics: Mapping[str, int]
    """The number of partitions of each topic that has subscribers and partitions."""
    subscriptions: Mapping[str, tuple[str, ...]]
    """The topics of `topics` that each member asked for."""
    threads: Mapping[str, int]
    """The number of threads that each member reads with, 1 or more."""
    topic_threads: Mapping[str, Mapping[str, int]]
    """The number of them that read a topic, by member and topic, if not all do."""

    def threads_of(self, member: str, topic: str) -> int:
        """Return the number of threads with which a member reads a topic."""
        return self.topic_threads.get(member, {}).get(topic, self.threads[member])

    def partitions(self) -> Iterable[TopicPartition]:
        """Iterate over all partitions to assign, in order."""
        return (
            TopicPartition(topic, number)
            for topic, count in self.topics.items()
            for number in range(count)
        )

    def subscribers(self) -> dict[str, list[str]]:
        """Return the members that asked for each topic, both in order."""
        found: dict[str, list[str]] = {topic: [] for topic in self.topics}
        for member in self.members:
            for topic in self.subscriptions[member]:
                found[topic].append(member)
        return found


def group_spec(
    topics: Mapping[str, int],
    subscriptions: Mapping[str, Collection[str]],
    *,
    threads: Mapping[str, int],
    topic_threads: Mapping[str, Mapping[str, int]],
    instance_ids: Mapping[str, str],
) -> GroupSpec:
    """Sort a group, and leave out topics that do not exist or have no subscribers.

    `topics` maps topics to their numbers of partitions. A member reads a topic with as many
    threads as `topic_threads` says, or else `threads`, or else one.
    """
    asked = {topic for wanted in subscriptions.values() for topic in wanted}
    present = {topic: topics[topic] for topic in sorted(asked) if topics.get(topic, 0) > 0}
    members = in_order(subscriptions, instance_ids)
    wanted = {m: tuple(sorted(present.keys() & set(subscriptions[m]))) for m in members}
    totals, counts = {member: threads.get(member, 1) for member in members}, {}
    for member in topic_threads.keys() & wanted.keys():
        own = {one: topic_threads[member].get(one, totals[member]) for one in wanted[member]}
        counts[member] = own
        totals[member] = max(own.values(), default=totals[member])
    return GroupSpec(members, present, wanted, totals, counts)


def in_order(members: Iterable[str], instance_ids: Mapping[str, str]) -> tuple[str, ...]:
    """Sort members: static ones by instance id, then the others by member id."""

    def place(member: str) -> tuple[bool, str, str]:
        return member not in instance_ids, instance_ids.get(member, member), member

    return tuple(sorted(members, key=place))


def last_owners(
    group: GroupSpec,
    previous: Mapping[str, Iterable[tuple[str, int]]],
    *,
    instance_ids: Mapping[str, str],
    generations: Mapping[str, int],
) -> dict[TopicPartition, str]:
    """Return the last owner of each partition, from the claims of present and former members.

    Of two claims to a partition, the higher generation wins: the other member missed a
    rebalance. At equal generations a present member wins. If several of the same rank
    claim it, nobody counts as its owner (as with Kafka's StickyAssignor): one of them is
    mistaken, and no partition with a valid owner should move because of that. What a
    former member had counts as that of the present member with the same instance id.
    """
    heirs = {instance_ids[m]: m for m in reversed(group.members) if m in instance_ids}
    present = frozenset(group.members)
    found: dict[TopicPartition, tuple[tuple[int, bool], set[str]]] = {}
    for claimant, claimed in previous.items():
        is_present = claimant in present
        owner = claimant if is_present else heirs.get(instance_ids.get(claimant, ""), claimant)
        rank = generations.get(claimant, NO_GENERATION), is_present
        for topic_partition in starmap(TopicPartition, claimed):
            best, owners = found.get(topic_partition, (rank, set()))
            if rank > best:
                owners = set()
            if rank >= best:
                found[topic_partition] = rank, owners | {owner}
    return {
        topic_partition: next(iter(owners))
        for topic_partition, (_, owners) in found.items()
        if len(owners) == 1
    }
