"""How fast each task may move replicas on one broker: its own throttle under shared ceilings.

The cluster's ceiling is the most that a broker sends, and that it receives, for the moving
replicas of all tasks together. Healing has a ceiling of its own below it, and goes first: other
tasks share what it leaves, but keep at least a tenth of the cluster's ceiling, so that none of
them stalls. Within a group the rate is shared evenly, and what a task's own throttle does not
let it use goes to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from leadline_common.reassignments import ThrottleBound

RESERVED_PERCENT = 10
"""The share of the cluster's ceiling that healing leaves to other tasks, if they can use it."""


class Mover(msgspec.Struct, frozen=True):
    """A task with moving replicas on a broker; `own` is its throttle, None for none."""

    task: str
    own: int | None = None
    is_healing: bool = False


class Ceilings(msgspec.Struct, frozen=True):
    """The rates, in bytes per second, that the tasks of a broker share; None is no limit."""

    cluster: int | None = None
    healing: int | None = None


class Allotment(msgspec.Struct, frozen=True):
    """A task's rate on a broker, in bytes per second, and what binds it; both None for no limit."""

    bytes_per_s: int | None = None
    bound_by: ThrottleBound | None = None


def allot(movers: Sequence[Mover], ceilings: Ceilings) -> dict[str, Allotment]:
    """Return the rate of each task on one broker.

    The sum never exceeds the cluster's ceiling, nor that of healing tasks theirs.
    """
    healing = [mover for mover in movers if mover.is_healing]
    others = [mover for mover in movers if not mover.is_healing]
    available = ceilings.cluster
    if available is not None:
        available -= _least(_demand(others), available * RESERVED_PERCENT // 100)
    limit = _lower(ceilings.healing, available)
    bound = ThrottleBound.CLUSTER_CEILING
    if limit is not None and limit == ceilings.healing:
        bound = ThrottleBound.HEALING_CEILING
    allotted = _share(healing, limit, bound)
    left = ceilings.cluster
    if left is not None:
        left -= sum(found.bytes_per_s or 0 for found in allotted.values())
    return allotted | _share(others, left, ThrottleBound.CLUSTER_CEILING)


def lowest(allotments: Iterable[Allotment]) -> Allotment:
    """Return the allotment of the broker where a task is slowest."""
    limited = [found for found in allotments if found.bytes_per_s is not None]
    return min(limited, key=lambda found: found.bytes_per_s or 0, default=Allotment())


def _share(
    movers: Sequence[Mover], limit: int | None, bound: ThrottleBound
) -> dict[str, Allotment]:
    """Share a limit evenly; what a task's own throttle leaves goes to the others."""
    allotted = {}
    left, sharing = limit, len(movers)
    for mover in sorted(movers, key=lambda mover: (mover.own is None, mover.own or 0, mover.task)):
        share = None if left is None else left // sharing
        rate = _lower(mover.own, share)
        is_own = rate is not None and rate == mover.own
        bound_by = None if rate is None else ThrottleBound.OWN if is_own else bound
        allotted[mover.task] = Allotment(rate, bound_by)
        left = None if left is None else left - (rate or 0)
        sharing -= 1
    return allotted


def _demand(movers: Iterable[Mover]) -> int | None:
    """Return the most that tasks can use; None for no limit."""
    total = 0
    for mover in movers:
        if mover.own is None:
            return None
        total += mover.own
    return total


def _lower(one: int | None, other: int | None) -> int | None:
    """Return the lower of two limits, of which None is none."""
    return other if one is None else one if other is None else min(one, other)


def _least(limit: int | None, value: int) -> int:
    return value if limit is None else min(limit, value)


BrokerMovers = Mapping[int, Mapping[str, Mapping[str, Sequence[int]]]]
"""For each broker the partitions with moving replicas: by task, and by topic id."""
