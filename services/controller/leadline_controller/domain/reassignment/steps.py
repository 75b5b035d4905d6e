"""The next step of a partition's reassignment: replicas to add and to drop (KIP-435).

Goals, in order: never fewer in-sync replicas than producers need; never fewer
replicas than before, or than wanted; the future leader first, to take load off
the present one; few replicas at a time; the target's order.

Constraints: a step is a function of the current state: replicas, target, limit, live
and in-sync brokers. Nothing is remembered between steps, so any controller can
calculate the next one.

Terms of KIP-435: CR current replicas, FTR final target replicas, ER excess replicas (in
CR but not in FTR), NR replicas that the step adds, DR replicas that it drops, TR the
result of the step, r the limit.

Example, r = 2, from (0, 1, 2, 3, 4) to (5, 6, 7, 8, 9), everything live:
+5 (leader), giving 5, 0, 1, 2, 3, 4; then -0 -1 +6, giving 5, 6, 2, 3, 4; then
-2 -3 +7 +8, giving 5, 6, 7, 8, 4; then -4 +9.

The text of KIP-435 and its example disagree; this follows the example. A step that adds
the future leader drops nothing. The step after it only fills up to the size of FTR.
Members of FTR come first, in its order.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from leadline_client.wire import NO_LEADER
from leadline_common.reassignments import ReassignmentAlgorithm

_Replicas = tuple[int, ...]


class Step(msgspec.Struct, frozen=True):
    """One step: TR (`assignment`), NR (`added`), DR (`dropped`) and the leader at its end.

    `leader_step` is true if the step changes the leader, and `is_idle` if nothing can be
    added or dropped now. `waiting_for` lists members of the target that are down and, for
    an idle step, those that are not in sync.
    """

    assignment: tuple[int, ...]
    added: tuple[int, ...]
    dropped: tuple[int, ...]
    leader: int
    leader_step: bool
    waiting_for: tuple[int, ...]
    is_idle: bool


class _Situation(msgspec.Struct, frozen=True):
    """The input of a step; `in_sync` are the live members of CR in the ISR.

    `holders` are these and the eligible members of CR: each has every committed record.
    """

    current: _Replicas
    target: _Replicas
    limit: int
    floor: int
    live: frozenset[int]
    in_sync: frozenset[int]
    holders: frozenset[int]

    @property
    def missing(self) -> _Replicas:
        return without(self.target, self.current)

    @property
    def available(self) -> _Replicas:
        return tuple(broker for broker in self.missing if broker in self.live)

    @property
    def excess(self) -> _Replicas:
        return without(self.current, self.target)

    @property
    def deficit(self) -> int:
        """How many in-sync replicas are missing to reach the floor."""
        return max(0, self.floor - len(self.in_sync))


def calculate_reassignment_step(
    current: tuple[int, ...],
    target: tuple[int, ...],
    *,
    replica_movements: int | None,
    min_insync_replicas: int,
    live: Collection[int],
    isr: Collection[int],
    eligible: Collection[int] = (),
    leader: int = NO_LEADER,
    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL,
) -> Step:
    """Calculate the next step from `current` to `target` (KIP-435).

    `replica_movements` is r, or None for no limit. Members of `isr` that are not live do
    not count as in sync. `eligible` replicas are outside the ISR and have every committed
    record (KIP-966).
    """
    in_sync = frozenset(b for b in current if b in isr and b in live)
    situation = _Situation(
        current=current,
        target=target,
        limit=len(target) + len(current) if replica_movements is None else replica_movements,
        floor=insync_floor(min_insync_replicas, target),
        live=frozenset(live),
        in_sync=in_sync,
        holders=in_sync.union(broker for broker in current if broker in eligible),
    )
    if algorithm is ReassignmentAlgorithm.LEGACY:
        added, dropped = situation.missing, situation.excess
    else:
        added, dropped = _plan_incremental(situation)
    return _finish(situation, added, dropped, leader, algorithm)


def insync_floor(min_insync_replicas: int, target: tuple[int, ...]) -> int:
    """Return how many in-sync replicas must remain: min.insync.replicas, at most all of FTR."""
    return max(1, min(min_insync_replicas, len(target)))


def order_replicas(replicas: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Return the members of `target` first, in its order, then the others in theirs."""
    return (*those_in(target, replicas), *without(replicas, target))


def choose_leader(
    algorithm: ReassignmentAlgorithm,
    leader: int,
    target: tuple[int, ...],
    assignment: tuple[int, ...],
    in_sync: Collection[int],
) -> int:
    """Choose the leader of a partition with the replicas `assignment` on its way to `target`.

    Choose the future leader as soon as it is in sync (`legacy`: only when the current
    leader is dropped); else the current leader, if it stays; else the first in-sync replica.
    """
    eager = algorithm is ReassignmentAlgorithm.INCREMENTAL
    if eager and target[0] in assignment and target[0] in in_sync:
        return target[0]
    if leader in assignment and leader in in_sync:
        return leader
    return next((broker for broker in assignment if broker in in_sync), NO_LEADER)


def limit_drops(
    dropped: tuple[int, ...], in_sync: Collection[int], holders: Collection[int], floor: int
) -> tuple[int, ...]:
    """Withdraw drops, the last first, while fewer than `floor` in-sync replicas or holders stay.

    Holders have every committed record. While the ISR is too small, an eligible replica may be the
    only other holder.
    """
    return _keep_enough(_keep_enough(dropped, in_sync, floor), holders, floor)


def _keep_enough(dropped: tuple[int, ...], members: Collection[int], floor: int) -> tuple[int, ...]:
    remaining = len(members) - sum(broker in members for broker in dropped)
    kept: list[int] = []
    for broker in reversed(dropped):
        if broker in members and remaining < floor:
            remaining += 1
        else:
            kept.append(broker)
    return tuple(reversed(kept))


def _plan_incremental(now: _Situation) -> tuple[_Replicas, _Replicas]:
    """Return NR and DR."""
    fits = len(now.missing) <= now.limit and len(now.excess) <= now.limit
    if now.target[0] in now.available and not fits:
        return now.available[: max(1, now.deficit)], ()
    # Drop out-of-sync replicas first: a dead one in the middle of CR could block all drops.
    excess = sorted(now.excess, key=lambda broker: broker in now.in_sync)
    wanted = min(len(excess), max(now.limit, len(now.current) - len(now.target)))
    room = len(now.target) - (len(now.current) - wanted)
    added = now.available[: max(min(now.limit, room), now.deficit)]
    # A target member that is down must not reduce the number of replicas.
    spare = len(now.current) + len(added) - min(len(now.current), len(now.target))
    dropped = tuple(excess[: min(wanted, spare)])
    in_sync, holders = now.in_sync.union(added), now.holders.union(added)
    return added, limit_drops(dropped, in_sync, holders, now.floor)


def _finish(
    now: _Situation,
    added: _Replicas,
    dropped: _Replicas,
    leader: int,
    algorithm: ReassignmentAlgorithm,
) -> Step:
    is_idle = not added and not dropped and {*now.current} != {*now.target}
    reached = without((*now.current, *added), dropped)
    assignment = now.current if is_idle else order_replicas(reached, now.target)
    chosen = choose_leader(algorithm, leader, now.target, assignment, now.in_sync.union(added))
    awaited = now.target if algorithm is ReassignmentAlgorithm.LEGACY else now.missing
    lagging = without(those_in(now.target, now.current), now.in_sync) if is_idle else ()
    return Step(
        assignment=assignment,
        added=added,
        dropped=dropped,
        leader=chosen,
        leader_step=leader not in (NO_LEADER, chosen),
        waiting_for=(*without(awaited, now.live), *lagging),
        is_idle=is_idle,
    )


def those_in(brokers: tuple[int, ...], others: Collection[int]) -> tuple[int, ...]:
    """Return the `brokers` that are in `others`, in order."""
    return tuple(broker for broker in brokers if broker in others)


def without(brokers: tuple[int, ...], others: Collection[int]) -> tuple[int, ...]:
    """Return the `brokers` that are not in `others`, in order."""
    return tuple(broker for broker in brokers if broker not in others)
