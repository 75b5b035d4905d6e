"""Plans: which replicas to move to balance, expand or drain brokers.

Goals, in order: replicas of a partition on different brokers, and no more of them on a
rack than necessary; as few moves as possible; equally many replicas per broker, then
equally many leaders (the spread between brokers is at most one if racks and the kind of
plan allow it). Load is counted in replicas, not in bytes.

    balance   any broker may give or receive replicas; overfull racks are corrected
    expand    only the added brokers receive replicas
    drain     only the drained brokers give replicas, and they give all of them

So draining an uneven cluster leaves it uneven if balancing would need further moves. The
order of the replicas, which determines the preferred leader, is balanced by all three
kinds, because changing it moves no data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain, count
from math import gcd
from typing import TypeAlias

import msgspec

from leadline_client.errors import PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_common.reassignments import PlanKind
from leadline_controller.domain.planning.leaders import balance_leaders
from leadline_controller.domain.planning.placement_state import (
    PlacementState,
    even_out,
    place_rest,
    repair_racks,
)
from leadline_controller.domain.planning.racks import RackRule, even_quotas

Assignments: TypeAlias = Mapping[TopicPartition, tuple[int, ...]]
Racks: TypeAlias = Mapping[int, str | None]
"""Brokers and their racks."""


_GOLDEN = 0.618


class PlannedLoad(msgspec.Struct, frozen=True):
    """One broker's replicas and leaders, before and after."""

    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int


class Plan(msgspec.Struct, frozen=True):
    """The partitions that change, with their new replicas, and the cost and effect of the plan.

    `moves` counts replicas that are copied to another broker; `minimum` is the least
    number that any plan of this kind needs. `leader_changes` counts partitions that get
    another first replica.
    """

    kind: PlanKind
    targets: dict[TopicPartition, tuple[int, ...]]
    moves: int
    minimum: int
    leader_changes: int
    receivers: tuple[int, ...]
    loads: dict[int, PlannedLoad]

    def spread(self, member: str) -> int:
        """Return the maximum minus the minimum of a `PlannedLoad` member over the receivers."""
        values = [getattr(self.loads[broker], member) for broker in self.receivers]
        return max(values, default=0) - min(values, default=0)


def plan_balance(
    assignments: Assignments, brokers: Racks, *, excluded: Collection[int] = ()
) -> Plan:
    """Balance replicas and leaders over the brokers; `excluded` ones keep their replicas."""
    receivers = brokers.keys() - {*excluded}
    rule = RackRule(brokers, receivers)
    placement = PlacementState(assignments.values(), rule)
    quotas = _quotas(placement, receivers)
    minimum = sum(_surplus(placement.load, quotas).values())
    repairs = repair_racks(placement, quotas)
    surplus, need = _surplus(placement.load, quotas), _need(placement.load, quotas)
    placement.move_surplus(_scattered(len(placement.replicas)), surplus, need)
    even_out(placement, quotas, receivers)
    balance_leaders(placement, receivers)
    return _finish(PlanKind.BALANCE, assignments, placement, max(minimum, repairs))


def plan_expand(
    assignments: Assignments,
    brokers: Racks,
    added: Collection[int],
    *,
    excluded: Collection[int] = (),
) -> Plan:
    """Give the added brokers their share, taken from the brokers with the most replicas.

    Raises:
        PolicyViolation: an added broker is not live.

    """
    _check_known(added, brokers)
    receivers = brokers.keys() - {*excluded}
    placement = PlacementState(assignments.values(), RackRule(brokers, receivers))
    quotas = _quotas(placement, receivers)
    need = {b: room for b, room in _need(placement.load, quotas).items() if b in added}
    surplus = {b: n for b, n in _surplus(placement.load, quotas).items() if b not in added}
    minimum = min(sum(need.values()), sum(surplus.values()))
    placement.move_surplus(_scattered(len(placement.replicas)), surplus, need)
    even_out(placement, quotas, {*added})
    balance_leaders(placement, receivers)
    return _finish(PlanKind.EXPAND, assignments, placement, minimum)


def plan_drain(
    assignments: Assignments,
    brokers: Racks,
    drained: Collection[int],
    *,
    excluded: Collection[int] = (),
) -> Plan:
    """Empty the drained brokers, which may be down; the least loaded brokers take over.

    Raises:
        PolicyViolation: fewer brokers than replicas of a partition would remain.

    """
    receivers = brokers.keys() - {*excluded, *drained}
    placement = PlacementState(assignments.values(), RackRule(brokers, receivers), givers=drained)
    surplus = {broker: placement.load[broker] for broker in sorted(drained)}
    minimum = sum(surplus.values())
    quotas = _quotas(placement, receivers, drained)
    order = [
        index
        for index, replicas in enumerate(placement.replicas)
        if any(broker in surplus for broker in replicas)
    ]
    placement.move_surplus(order, surplus, _need(placement.load, quotas))
    place_rest(placement, order, drained)
    even_out(placement, quotas, receivers)
    balance_leaders(placement, receivers)
    return _finish(PlanKind.DRAIN, assignments, placement, minimum)


def _check_known(named: Collection[int], brokers: Racks) -> None:
    unknown = sorted({*named} - brokers.keys())
    if unknown:
        raise PolicyViolation(
            f"brokers {unknown} are not live: start them before you assign replicas to them"
        )


def _quotas(
    placement: PlacementState, receivers: Collection[int], givers: Collection[int] = ()
) -> dict[int, int]:
    """Return how many of the receivers' and givers' replicas each receiver should have."""
    counted = {*receivers, *givers}
    if placement.load.keys() <= counted:
        factors = Counter(map(len, placement.replicas))
    else:
        factors = Counter(sum(b in counted for b in replicas) for replicas in placement.replicas)
    have = {broker: placement.load[broker] for broker in receivers}
    return even_quotas(have, factors, placement.rule)


def _surplus(load: Mapping[int, int], quotas: Mapping[int, int]) -> dict[int, int]:
    return {b: load[b] - quotas[b] for b in sorted(quotas) if load[b] > quotas[b]}


def _need(load: Mapping[int, int], quotas: Mapping[int, int]) -> dict[int, int]:
    return {b: quotas[b] - load[b] for b in sorted(quotas) if load[b] < quotas[b]}


def _scattered(size: int) -> list[int]:
    """Return the indexes in an order of which every prefix covers all topics evenly.

    A step of the golden ratio avoids the period of any round-robin placement.
    """
    step = next(s for s in count(int(size * _GOLDEN) + 1) if gcd(s, max(1, size)) == 1)
    return [turn * step % size for turn in range(size)]


def _finish(
    kind: PlanKind, assignments: Assignments, placement: PlacementState, minimum: int
) -> Plan:
    names, before = list(assignments), list(assignments.values())
    changed = [i for i in sorted(placement.changed) if placement.replicas[i] != before[i]]
    moves = sum(len({*placement.replicas[i]} - {*before[i]}) for i in changed)
    return Plan(
        kind=kind,
        targets={names[i]: placement.replicas[i] for i in changed},
        moves=moves,
        minimum=minimum,
        leader_changes=sum(placement.replicas[i][0] != before[i][0] for i in changed),
        receivers=placement.rule.receivers,
        loads=_loads(before, placement),
    )


def _loads(before: list[tuple[int, ...]], placement: PlacementState) -> dict[int, PlannedLoad]:
    had = Counter(chain.from_iterable(before))
    led = Counter(replicas[0] for replicas in before)
    leads = Counter(replicas[0] for replicas in placement.replicas)
    everyone = sorted({*had, *placement.load, *placement.rule.racks})
    return {b: PlannedLoad(had[b], placement.load[b], led[b], leads[b]) for b in everyone}
