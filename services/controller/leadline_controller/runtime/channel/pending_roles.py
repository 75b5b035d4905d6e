"""How the pending roles of one broker are divided into requests. Pure."""

from __future__ import annotations

from collections.abc import Set
from itertools import islice
from typing import Final, TypeAlias

from leadline_client.wire import TopicPartition

MOST_ROLES: Final = 2_000
"""In one request. A broker takes about 20 µs for each, and serves nobody else meanwhile."""

PendingPartitions: TypeAlias = dict[str, dict[int, None]]
"""Partition numbers by topic, in the order in which they were added."""


def take_roles(
    pending: PendingPartitions, *, but: Set[TopicPartition] = frozenset()
) -> PendingPartitions:
    """Remove and return what the next request holds: whole topics, unless one has too many.

    Partitions in `but` stay.
    """
    taken: PendingPartitions = {}
    left = MOST_ROLES
    for topic, numbers in list(pending.items()):
        wanted = [n for n in numbers if TopicPartition(topic, n) not in but] if but else numbers
        if not wanted:
            continue
        if len(wanted) > left and taken:
            break
        part = taken[topic] = dict.fromkeys(islice(wanted, left))
        left -= len(part)
        rest = {number: None for number in numbers if number not in part}
        if rest:
            pending[topic] = rest
        else:
            del pending[topic]
    return taken
