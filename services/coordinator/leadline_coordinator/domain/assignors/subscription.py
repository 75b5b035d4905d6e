"""Who may read what: the members of a group in order, what they asked for, what they had.

Everything that an assignor decides from is brought into one order here, so that the
same group always gets the same answer: topics by name, partitions by number, members
by id. A member with an instance id (static membership, KIP-345) is ordered by that
instead, before all others: restarted under a new member id it is in its old place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

Partition = tuple[str, int]
"""A partition: its topic and its number."""

Assignment = dict[str, list[Partition]]
"""What each member reads, in order."""

NO_GENERATION = -1
"""The generation of a claim that states none: any other outranks it."""


class Group(msgspec.Struct, frozen=True):
    """A group, in order. `members` are all members, also those that ask for nothing."""

    members: tuple[str, ...]
    topics: Mapping[str, int]
    """The topics that somebody asked for and that have partitions: the count of those."""
    subscriptions: Mapping[str, tuple[str, ...]]
    """For each member the topics of `topics` that it asked for."""
    threads: Mapping[str, int]
    """For each member the number of threads that it reads with, 1 or more."""

    def partitions(self) -> Iterable[Partition]:
        """Iterate over everything that somebody has to read, in order."""
        return ((topic, number) for topic, count in self.topics.items() for number in range(count))

    def subscribers(self) -> dict[str, list[str]]:
        """Return the members by the topics that they asked for, both in order."""
        found: dict[str, list[str]] = {topic: [] for topic in self.topics}
        for member in self.members:
            for topic in self.subscriptions[member]:
                found[topic].append(member)
        return found


def group_of(
    topics: Mapping[str, int],
    subscriptions: Mapping[str, Collection[str]],
    *,
    threads: Mapping[str, int],
    instance_ids: Mapping[str, str],
) -> Group:
    """Bring a group into order, leaving out topics that nobody asked for or that do not exist.

    `topics` maps the topics to their numbers of partitions; a member without an entry
    in `threads` reads with one.
    """
    asked = {topic for wanted in subscriptions.values() for topic in wanted}
    present = {topic: topics[topic] for topic in sorted(asked) if topics.get(topic, 0) > 0}
    members = in_order(subscriptions, instance_ids)
    return Group(
        members,
        present,
        {m: tuple(sorted(present.keys() & set(subscriptions[m]))) for m in members},
        {member: threads.get(member, 1) for member in members},
    )


def in_order(members: Iterable[str], instance_ids: Mapping[str, str]) -> tuple[str, ...]:
    """Sort members: static ones by instance id, then the others by member id."""

    def place(member: str) -> tuple[bool, str, str]:
        return member not in instance_ids, instance_ids.get(member, member), member

    return tuple(sorted(members, key=place))


def last_owners(
    group: Group,
    previous: Mapping[str, Iterable[Partition]],
    *,
    instance_ids: Mapping[str, str],
    generations: Mapping[str, int],
) -> dict[Partition, str]:
    """Return who had each partition before, by the claims of present and former members.

    Of two claims to a partition the one of the higher generation counts: the other is
    that of a member which missed a rebalance. Of equal claims that of a present member
    counts, then the first in order. What a former member with the instance id of a
    present one had counts as the present one's.
    """
    heirs = {instance_ids[m]: m for m in reversed(group.members) if m in instance_ids}
    found: dict[Partition, tuple[int, str]] = {}
    for claimant in _present_first(group, previous, instance_ids):
        generation = generations.get(claimant, NO_GENERATION)
        for topic, number in previous[claimant]:
            known = found.get((topic, number))
            if known is None or known[0] < generation:
                found[topic, number] = generation, claimant
    members = set(group.members)
    names = {
        claimant: claimant
        if claimant in members
        else heirs.get(instance_ids.get(claimant, ""), claimant)
        for claimant in previous
    }
    return {partition: names[claimant] for partition, (_, claimant) in found.items()}


def _present_first(
    group: Group, previous: Mapping[str, Iterable[Partition]], instance_ids: Mapping[str, str]
) -> list[str]:
    present = [member for member in group.members if member in previous]
    return [*present, *in_order(previous.keys() - set(present), instance_ids)]
