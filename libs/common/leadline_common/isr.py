"""The ISR floor and the eligible replicas of a partition, as leader and controller compute them.

Both rest on one condition: nothing commits while the ISR is below the floor, or while the
partition's state lists eligible replicas (rule R5). So a replica that leaves the ISR meanwhile
keeps every committed record. The leader first writes a state without eligible replicas, and
only then commits again. Therefore neither needs to know the other's configs. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Collection

_Replicas = tuple[int, ...]


def isr_floor(
    min_insync_replicas: int, assigned: Collection[int], adding: Collection[int] = ()
) -> int:
    """Return the ISR size below which nothing commits: min(min.insync.replicas, |AR|).

    Replicas that a reassignment is `adding` do not raise it: an unfinished reassignment must
    not refuse produces that were accepted before it began.
    """
    settled = len(assigned)
    if adding:
        settled = sum(broker not in adding for broker in assigned) or settled
    return min(min_insync_replicas, settled)


def eligible_after(
    assigned: _Replicas, isr: _Replicas, eligible: _Replicas, new_isr: _Replicas, floor: int
) -> _Replicas:
    """Return the eligible replicas to store with `new_isr` (rule R14, KIP-966).

    `isr` and `eligible` are those of the state that it replaces; each of them holds every
    committed record. The leader of the new state must be one of them too.
    """
    if len(new_isr) >= floor:
        return ()
    return tuple(
        broker
        for broker in assigned
        if broker not in new_isr and (broker in isr or broker in eligible)
    )
