"""Sticky: balanced, and of all balanced assignments one that moves the fewest partitions.

Balance comes first: where all members asked for the same topics, no two threads differ
by more than one. Then nobody gives up a partition that it may keep. That case is
solved here, in time linear in members and partitions; `leveling` solves the other.

Example: a, b and c have four partitions each, and d joins: each gives up one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from leadline_coordinator.domain.assignors.leveling import assign_levelled
from leadline_coordinator.domain.assignors.subscription import Assignment, Group, Partition


def assign_sticky(group: Group, owners: Mapping[Partition, str]) -> Assignment:
    """Assign with the fewest moves from `owners`, who had the partitions before."""
    claims = _claims(group, owners)
    if len({wanted for wanted in group.subscriptions.values() if wanted}) > 1:
        return assign_levelled(group, claims)
    return _assign_equal(group, claims)


def _claims(group: Group, owners: Mapping[Partition, str]) -> Assignment:
    """Return what each member had and may still read, in order."""
    claims: Assignment = {member: [] for member in group.members}
    wanted = {member: frozenset(topics) for member, topics in group.subscriptions.items()}
    for partition in group.partitions():
        owner = owners.get(partition)
        if owner in claims and partition[0] in wanted[owner]:
            claims[owner].append(partition)
    return claims


def _assign_equal(group: Group, claims: Assignment) -> Assignment:
    """Let members keep what their quotas allow, and deal the rest to those with room."""
    quotas = _quotas(group, claims)
    kept: Assignment = {m: claims[m][: quotas.get(m, 0)] for m in group.members}
    taken = {partition for partitions in kept.values() for partition in partitions}
    with_room = deque(member for member, quota in quotas.items() if len(kept[member]) < quota)
    for partition in group.partitions():
        if partition not in taken:
            member = with_room.popleft()
            kept[member].append(partition)
            if len(kept[member]) < quotas[member]:
                with_room.append(member)
    return kept


def _quotas(group: Group, claims: Assignment) -> dict[str, int]:
    """Return how many partitions each subscribed member gets.

    Each thread gets the same number; what is left over goes, one to a thread, first to
    the threads of members that had more than that already, which saves a move each.
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
