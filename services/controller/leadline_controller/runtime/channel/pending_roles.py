"""How the pending roles of one broker are divided into requests. Pure."""

from __future__ import annotations

from itertools import islice
from typing import Final, TypeAlias

MOST_ROLES: Final = 2_000
"""In one request. A broker takes about 20 µs for each, and serves nobody else meanwhile."""

PendingPartitions: TypeAlias = dict[str, dict[int, None]]
"""Partition numbers by topic, in the order in which they were added."""


def take_roles(pending: PendingPartitions) -> PendingPartitions:
    """Remove and return what the next request holds: whole topics, unless one has too many."""
    taken: PendingPartitions = {}
    left = MOST_ROLES
    for topic, numbers in list(pending.items()):
        if len(numbers) > left and taken:
            break
        taken[topic] = dict.fromkeys(islice(numbers, left))
        left -= len(taken[topic])
        rest = dict.fromkeys(islice(numbers, len(taken[topic]), None))
        if rest:
            pending[topic] = rest
        else:
            del pending[topic]
    return taken
