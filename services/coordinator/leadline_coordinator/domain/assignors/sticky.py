"""Sticky: a balanced assignment, and of those one that moves the fewest partitions.

Balance comes first: if all members asked for the same topics, no two threads differ by
more than one. Within that, no member gives up a partition that it may keep. This module
solves that case in time linear in members and partitions; `leveling` solves the other, in a
time that grows with the subscriptions and the partitions, but not with their product.

Example: a, b and c have four partitions each, and d joins: each gives up one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.group_spec import Assignment, GroupSpec
from leadline_coordinator.domain.assignors.leveling import assign_levelled


def assign_sticky(group: GroupSpec, owners: Mapping[TopicPartition, str]) -> Assignment:
    """Assign with the fewest moves from `owners`, the previous ones."""
    claims = _claims(group, owners)
    if len({wanted for wanted in group.subscriptions.values() if wanted}) > 1:
        return assign_levelled(group, claims)
    return _assign_equal(group, claims)


def _claims(group: GroupSpec, owners: Mapping[TopicPartition, str]) -> Assignment:
    """Return what each member had and still asks for, in order."""
    claims: Assignment = {member: [] for member in group.members}
    wanted = {member: frozenset(topics) for member, topics in group.subscriptions.items()}
    for topic_partition in group.partitions():
        owner = owners.get(topic_partition)
        if owner in claims and topic_partition.topic in wanted[owner]:
            claims[owner].append(topic_partition)
    return claims


def _assign_equal(group: GroupSpec, claims: Assignment) -> Assignment:
    """Let members keep what their quotas allow, and deal the rest to those below theirs."""
    quotas = _quotas(group, claims)
    kept: Assignment = {m: claims[m][: quotas.get(m, 0)] for m in group.members}
    taken = {owned for topic_partitions in kept.values() for owned in topic_partitions}
    with_room = deque(member for member, quota in quotas.items() if len(kept[member]) < quota)
    for topic_partition in group.partitions():
        if topic_partition not in taken:
            member = with_room.popleft()
            kept[member].append(topic_partition)
            if len(kept[member]) < quotas[member]:
                with_room.append(member)
    return kept


def _quotas(group: GroupSpec, claims: Assignment) -> dict[str, int]:
    """Return how many partitions each subscribed member gets.

    Each thread gets the same number. The remainder goes, one to a thread, first to the
    threads of members that had more than that already, which saves a move each.
    """
    members = [member for member in group.members if group.subscriptions[member]]
    if not members:
        return {}
    each, over = divmod(sum(group.topics.values()), sum(group.threads[m] for m in members))
    quotas = {}
    for member in members:
        threads = group.threads[member]
        extra = min(over, threads, max(0, len(claims[member]) - threads * each))
        quotas[member] = threads * each + extra
        over -= extra
    for member in members:
        extra = min(over, group.threads[member] * (each + 1) - quotas[member])
        quotas[member] += extra
        over -= extra
    return quotas
