"""Range: each topic for itself, in contiguous ranges of partitions, one for each thread.

As Kafka 0.8 did it: the threads of all subscribed members stand in a row; the
partitions of the topic are cut in as many ranges, the first ones larger by one where
the numbers do not divide. Partitions of equal number of two topics with equal counts
and subscribers so go to the same member, which is what joins need.

Example: 10 partitions, member a with two threads, b with one: a reads 0-3 and 4-6,
b reads 7-9.
"""

from __future__ import annotations

from leadline_coordinator.domain.assignors.subscription import Assignment, Group


def assign_ranges(group: Group) -> Assignment:
    """Cut every topic in ranges."""
    assignment: Assignment = {member: [] for member in group.members}
    for topic, members in group.subscribers().items():
        row = [member for member in members for _ in range(group.threads[member])]
        size, larger = divmod(group.topics[topic], len(row))
        start = 0
        for place, member in enumerate(row):
            end = start + size + (place < larger)
            assignment[member].extend((topic, number) for number in range(start, end))
            start = end
    return assignment
