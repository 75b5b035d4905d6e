"""Who leads a partition, and who stays in sync with the leader (rule R14, seed 1 A.3).

Goals, in order: never lose a committed record; have a leader; prefer the order of the assignment.

Constraints: a clean leader is a live member of the ISR, as every member holds
every committed record. The ISR is never emptied: when none of its members is
live, the partition has no leader and keeps its ISR, so that the first of them to
return leads without loss. Seed 1 would elect any live replica then; that is an
*unclean* election here, done only where the topic, the cluster or an operator
asks for it.

Method: one function for every kind of election; the kinds differ in who may lead
and in who leaves the ISR.

Example: assignment (1, 2, 3), ISR (1, 2), broker 1 dies. Offline election: leader
2, ISR (2). Then 2 dies: leader -1, ISR (2) kept, although 3 is live. An unclean
election would give leader 3, ISR (3).

Eligible members (KIP-966): while the ISR is smaller than the floor
min(min.insync.replicas, replicas) the high watermark stands still (rule R5), so
those who left on the way there still hold every committed record.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from leadline_client.wire import NO_LEADER
from leadline_common.elections import ElectionKind, ElectionReason

__all__ = ["Election", "ElectionKind", "ElectionReason", "elect", "eligible_after"]


class Election(msgspec.Struct, frozen=True):
    """The outcome: `leader` is -1 where nobody may lead; `isr` is what then stands."""

    leader: int
    isr: tuple[int, ...]
    reason: ElectionReason


def elect(
    kind: ElectionKind,
    assignment: tuple[int, ...],
    isr: tuple[int, ...],
    live: Collection[int],
    *,
    leader: int = NO_LEADER,
    unclean: bool = False,
    shutting_down: Collection[int] = (),
    eligible: Collection[int] = (),
    floor: int = 1,
) -> Election:
    """Choose the leader and the ISR of one partition.

    `leader` is the present one, `assignment` the replicas in order of preference
    (for `reassign`: the target), `live` the brokers that may be given a role.
    With `unclean` a replica outside the ISR may lead when no member can; an
    `eligible` one is then taken first. `shutting_down` brokers are live still, but
    are given nothing new. A controlled shutdown takes leadership from them where
    another member can take over, and their place in the ISR where that leaves
    `floor` members or more: those who can are needed by acks=all until they stop.
    """
    staying = frozenset(live).difference(shutting_down)
    match kind:
        case ElectionKind.NEW_PARTITION:
            return _first_leader(assignment, staying)
        case ElectionKind.REPLICA_OFFLINE if leader in isr and leader in live:
            return Election(leader, _those_in(isr, live), ElectionReason.UNCHANGED)
        case ElectionKind.OFFLINE | ElectionKind.REPLICA_OFFLINE:
            return _offline(assignment, isr, live, staying, unclean=unclean, eligible=eligible)
        case ElectionKind.PREFERRED:
            return _within(assignment[:1], isr, staying, leader, ElectionReason.PREFERRED)
        case ElectionKind.REASSIGN:
            return _within(assignment, isr, staying, leader, ElectionReason.REASSIGNED)
        case ElectionKind.CONTROLLED_SHUTDOWN:
            return _hand_over(assignment, isr, live, staying, leader, floor)


def eligible_after(
    assignment: tuple[int, ...],
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    election: Election,
    min_insync_replicas: int,
) -> tuple[int, ...]:
    """Return who, outside the new ISR, still holds every committed record (KIP-966).

    `isr` and `eligible` are those before the election. An unclean leader from
    outside both defines a new history, of which nobody else holds anything yet.
    """
    floor = min(min_insync_replicas, len(assignment))
    # With an ISR at the floor the watermark moves: who had left before holds no longer all.
    holders = {*isr} if len(isr) >= floor else {*isr, *eligible}
    if len(election.isr) >= floor or not holders.issuperset(election.isr):
        return ()
    return tuple(b for b in assignment if b in holders and b not in election.isr)


def _those_in(brokers: tuple[int, ...], others: Collection[int]) -> tuple[int, ...]:
    return tuple(broker for broker in brokers if broker in others)


def _first_leader(assignment: tuple[int, ...], live: Collection[int]) -> Election:
    isr = _those_in(assignment, live)
    if not isr:
        return Election(NO_LEADER, (), ElectionReason.NONE)
    return Election(isr[0], isr, ElectionReason.NEW)


def _offline(
    assignment: tuple[int, ...],
    isr: tuple[int, ...],
    live: Collection[int],
    staying: Collection[int],
    *,
    unclean: bool,
    eligible: Collection[int],
) -> Election:
    """Choose among `staying`; a member that is about to stop still rules out a lossy choice."""
    in_sync = _those_in(isr, live)
    for broker in assignment:
        if broker in in_sync and broker in staying:
            return Election(broker, in_sync, ElectionReason.ISR)
    candidates = _those_in(assignment, staying) if unclean and not in_sync else ()
    if not candidates:
        return Election(NO_LEADER, isr, ElectionReason.NONE)
    chosen = next((b for b in candidates if b in eligible), candidates[0])
    return Election(chosen, (chosen,), ElectionReason.UNCLEAN)


def _within(
    candidates: tuple[int, ...],
    isr: tuple[int, ...],
    live: Collection[int],
    leader: int,
    reason: ElectionReason,
) -> Election:
    """Move leadership to the first candidate that is live and in sync; the ISR stays."""
    chosen = next((b for b in candidates if b in live and b in isr), None)
    if chosen is None or chosen == leader:
        return Election(leader, isr, ElectionReason.UNCHANGED)
    return Election(chosen, isr, reason)


def _hand_over(
    assignment: tuple[int, ...],
    isr: tuple[int, ...],
    live: Collection[int],
    staying: Collection[int],
    leader: int,
    floor: int,
) -> Election:
    """Take the brokers that shut down out, unless nobody else is in sync, or too few are."""
    others = _those_in(isr, staying)
    left = others if len(others) >= floor else _those_in(isr, live)
    if leader in others:
        return Election(leader, left, ElectionReason.UNCHANGED)
    chosen = next((b for b in assignment if b in others), None)
    if chosen is None:
        return Election(leader, isr, ElectionReason.UNCHANGED)
    return Election(chosen, left, ElectionReason.ISR)
