"""Leader election of one partition (rule R14; Replication V3, section A).

Goals, in order: never lose a committed record; have a leader; prefer the order of
the assignment.

Constraints: a clean leader is a live member of the ISR, because every member holds
every committed record. The ISR never becomes empty: if no member is live, the
partition has no leader and keeps its ISR, so that the first member to return can
lead without loss. Replication V3 elects any live replica in that case; here this is
an *unclean* election, which the topic, the cluster or an operator has to allow.

Method: one function for all kinds of election. The kinds differ in the candidates
and in the members that leave the ISR.

Example: assignment (1, 2, 3), ISR (1, 2), and broker 1 fails. An offline election
gives leader 2 and ISR (2). When broker 2 fails too, the leader is -1 and the ISR
remains (2), although broker 3 is live. An unclean election would give leader 3, ISR (3).

Misplaced members (rule R17) are live, but not with the log directory that their membership
belongs to. They count as members that are down. An unclean election prefers any other
replica, because they have lost what they had.

Eligible replicas (KIP-966): while the ISR is below its floor, the high watermark cannot
advance (rule R5), so that replicas that leave the ISR then hold every committed record;
see `leadline_common.isr`.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from leadline_client.wire import NO_LEADER
from leadline_common.elections import ElectionKind, ElectionReason
from leadline_common.isr import eligible_after as eligible_replicas_after

__all__ = ["Election", "ElectionKind", "ElectionReason", "elect", "eligible_after"]


class Election(msgspec.Struct, frozen=True):
    """The result of an election: the new ISR, and the leader or -1 if no replica may lead."""

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
    misplaced: Collection[int] = (),
) -> Election:
    """Elect the leader and the ISR of one partition.

    `assignment` lists the replicas in order of preference (for `reassign`: the target),
    `leader` is the current leader, and `live` are the brokers that may have a role.
    With `unclean`, a replica outside the ISR may lead if no member can; `eligible`
    replicas come first.

    `shutting_down` brokers are live, but never get a new role. A controlled shutdown
    moves their leadership to another member of the ISR, if there is one, and removes
    them from the ISR if at least `floor` members remain. Otherwise they stay, because
    acks=all needs them until they stop.

    `misplaced` brokers are live, but without the records of their membership.
    """
    staying = frozenset(live).difference(shutting_down)
    live = frozenset(live).difference(misplaced)
    match kind:
        case ElectionKind.NEW_PARTITION:
            return _first_leader(assignment, staying)
        case ElectionKind.REPLICA_OFFLINE if leader in isr and leader in live:
            return Election(leader, _those_in(isr, live), ElectionReason.UNCHANGED)
        case ElectionKind.OFFLINE | ElectionKind.REPLICA_OFFLINE:
            return _offline(
                assignment,
                isr,
                live,
                staying,
                unclean=unclean,
                eligible=eligible,
                misplaced=misplaced,
            )
        case ElectionKind.PREFERRED:
            return _within(assignment[:1], isr, staying & live, leader, ElectionReason.PREFERRED)
        case ElectionKind.REASSIGN:
            return _within(assignment, isr, staying & live, leader, ElectionReason.REASSIGNED)
        case ElectionKind.CONTROLLED_SHUTDOWN:
            return _controlled_shutdown(assignment, isr, live, staying & live, leader, floor)


def eligible_after(
    assignment: tuple[int, ...],
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    election: Election,
    floor: int,
) -> tuple[int, ...]:
    """Return the replicas outside the new ISR that hold every committed record (KIP-966).

    `isr` and `eligible` are those before the election. An unclean leader from outside
    both starts a new log, so that no other replica is eligible.
    """
    if not {*isr, *eligible}.issuperset(election.isr):
        return ()
    return eligible_replicas_after(assignment, isr, eligible, election.isr, floor)


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
    misplaced: Collection[int],
) -> Election:
    """Elect one of `staying`; a live member that is shutting down prevents an unclean election."""
    in_sync = _those_in(isr, live)
    for broker in assignment:
        if broker in in_sync and broker in staying:
            return Election(broker, in_sync, ElectionReason.ISR)
    candidates = _those_in(assignment, staying) if unclean and not in_sync else ()
    if not candidates:
        replaced = any(broker in misplaced for broker in isr)
        reason = ElectionReason.DIRECTORY_REPLACED if replaced else ElectionReason.NONE
        return Election(NO_LEADER, isr, reason)
    chosen = min(candidates, key=lambda b: (b in misplaced, b not in eligible))
    return Election(chosen, (chosen,), ElectionReason.UNCLEAN)


def _within(
    candidates: tuple[int, ...],
    isr: tuple[int, ...],
    live: Collection[int],
    leader: int,
    reason: ElectionReason,
) -> Election:
    """Move leadership to the first candidate that is live and in sync; keep the ISR."""
    chosen = next((b for b in candidates if b in live and b in isr), None)
    if chosen is None or chosen == leader:
        return Election(leader, isr, ElectionReason.UNCHANGED)
    return Election(chosen, isr, reason)


def _controlled_shutdown(
    assignment: tuple[int, ...],
    isr: tuple[int, ...],
    live: Collection[int],
    staying: Collection[int],
    leader: int,
    floor: int,
) -> Election:
    """Remove brokers that shut down, unless too few members of the ISR would remain."""
    others = _those_in(isr, staying)
    left = others if len(others) >= floor else _those_in(isr, live)
    if leader in others:
        return Election(leader, left, ElectionReason.UNCHANGED)
    chosen = next((b for b in assignment if b in others), None)
    if chosen is None:
        return Election(leader, isr, ElectionReason.UNCHANGED)
    return Election(chosen, left, ElectionReason.ISR)
