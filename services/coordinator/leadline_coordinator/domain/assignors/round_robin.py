"""Round robin: all partitions of all topics are dealt to all threads in a circle.

A thread whose member has not asked for the topic is passed over. Where all asked for
the same, no thread has two partitions more than another.

Example: topics t and u of three partitions each, members a and b: a reads t-0, t-2,
u-1, and b reads t-1, u-0, u-2.
"""

from __future__ import annotations

from leadline_coordinator.domain.assignors.subscription import Assignment, Group


def deal_round_robin(group: Group) -> Assignment:
    """Deal every partition to the next thread that may have it."""
    assignment: Assignment = {member: [] for member in group.members}
    circle = [member for member in group.members for _ in range(group.threads[member])]
    wanted = {member: frozenset(topics) for member, topics in group.subscriptions.items()}
    place = 0
    for topic, number in group.partitions():
        while topic not in wanted[circle[place % len(circle)]]:
            place += 1
        assignment[circle[place % len(circle)]].append((topic, number))
        place += 1
    return assignment
