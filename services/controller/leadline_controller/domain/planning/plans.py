"""Plans: which replicas to move so that brokers have equally many, or none.

Goals, in order: replicas of a partition on different brokers, and never more of them on
a rack than is unavoidable; as few moves as possible; equally many replicas per broker,
then equally many leaders (the spread between brokers is at most one, where racks and
the kind of plan allow it). Loads are counted in replicas, not in bytes.

    balance   every broker gives or takes; racks that are too full are put right
    expand    the added brokers get their share, and nobody else gets anything
    drain     the drained brokers give everything, and nobody else gives anything

So a drain of an uneven cluster leaves it uneven where evening out would need further
moves. The order of a list, which says who leads, costs no move and is evened out in all
three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, count
from math import gcd
from typing import TypeAlias

import msgspec

from leadline_client.errors import PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_common.reassignments import PlanKind
from leadline_controller.domain.planning.leaders import balance_leaders
from leadline_controller.domain.planning.placement_state import PlacementState
from leadline_controller.domain.planning.racks import RackRule, even_quotas
from leadline_controller.domain.planning.replacements import choose_receiver

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
    """The partitions that change, with their new replicas, and what that costs and brings.

    `moves` counts replicas that are copied to another broker. `minimum` is the least
    number that any plan of this kind needs. `leader_changes` counts partitions
    with another first replica. `spread` figures, in `Spread`, are over the `receivers`.
    """

    kind: PlanKind
    targets: dict[TopicPartition, tuple[int, ...]]
    moves: int
    minimum: int
    leader_changes: int
    receivers: tuple[int, ...]
    loads: dict[int, PlannedLoad]

    def spread(self, figure: str) -> int:
        """Return the difference between the most and the least of a figure of `PlannedLoad`."""
        values = [getattr(self.loads[broker], figure) for broker in self.receivers]
        return max(values, default=0) - min(values, default=0)


def plan_balance(
    assignments: Assignments, brokers: Racks, *, excluded: Collection[int] = ()
) -> Plan:
    """Even out replicas and leaders over the brokers; `excluded` ones keep what they have."""
    receivers = brokers.keys() - {*excluded}
    rule = RackRule(brokers, receivers)
    board = PlacementState(assignments.values(), rule)
    quotas = _quotas(board, receivers)
    minimum = sum(_surplus(board.load, quotas).values())
    repairs = _repair_racks(board, quotas)
    surplus, need = _surplus(board.load, quotas), _need(board.load, quotas)
    board.move_surplus(_scattered(len(board.replicas)), surplus, need)
    _even_out(board, quotas, receivers)
    balance_leaders(board, receivers)
    return _finish(PlanKind.BALANCE, assignments, board, max(minimum, repairs))


def plan_expand(
    assignments: Assignments,
    brokers: Racks,
    added: Collection[int],
    *,
    excluded: Collection[int] = (),
) -> Plan:
    """Give the added brokers their share, taken from those that have most.

    Raises:
        PolicyViolation: an added broker is not among the brokers.

    """
    _check_known(added, brokers)
    receivers = brokers.keys() - {*excluded}
    board = PlacementState(assignments.values(), RackRule(brokers, receivers))
    quotas = _quotas(board, receivers)
    need = {b: room for b, room in _need(board.load, quotas).items() if b in added}
    surplus = {b: n for b, n in _surplus(board.load, quotas).items() if b not in added}
    minimum = min(sum(need.values()), sum(surplus.values()))
    board.move_surplus(_scattered(len(board.replicas)), surplus, need)
    _even_out(board, quotas, {*added})
    balance_leaders(board, receivers)
    return _finish(PlanKind.EXPAND, assignments, board, minimum)


def plan_drain(
    assignments: Assignments,
    brokers: Racks,
    drained: Collection[int],
    *,
    excluded: Collection[int] = (),
) -> Plan:
    """Empty the drained brokers, which may be down; those that have least take over.

    Raises:
        PolicyViolation: there would be fewer brokers than replicas of a partition.

    """
    receivers = brokers.keys() - {*excluded, *drained}
    board = PlacementState(assignments.values(), RackRule(brokers, receivers), givers=drained)
    surplus = {broker: board.load[broker] for broker in sorted(drained)}
    minimum = sum(surplus.values())
    quotas = _quotas(board, receivers, drained)
    order = [
        index
        for index, replicas in enumerate(board.replicas)
        if any(broker in surplus for broker in replicas)
    ]
    board.move_surplus(order, surplus, _need(board.load, quotas))
    _place_rest(board, order, drained)
    _even_out(board, quotas, receivers)
    balance_leaders(board, receivers)
    return _finish(PlanKind.DRAIN, assignments, board, minimum)


def _check_known(named: Collection[int], brokers: Racks) -> None:
    unknown = sorted({*named} - brokers.keys())
    if unknown:
        raise PolicyViolation(
            f"brokers {unknown} are not live: start them before they get replicas"
        )


def _quotas(
    board: PlacementState, receivers: Collection[int], givers: Collection[int] = ()
) -> dict[int, int]:
    """Return what each receiver should have of its own and of the givers' replicas."""
    counted = {*receivers, *givers}
    if board.load.keys() <= counted:
        factors = Counter(map(len, board.replicas))
    else:
        factors = Counter(sum(b in counted for b in replicas) for replicas in board.replicas)
    have = {broker: board.load[broker] for broker in receivers}
    return even_quotas(have, factors, board.rule)


def _surplus(load: Mapping[int, int], quotas: Mapping[int, int]) -> dict[int, int]:
    return {b: load[b] - quotas[b] for b in sorted(quotas) if load[b] > quotas[b]}


def _need(load: Mapping[int, int], quotas: Mapping[int, int]) -> dict[int, int]:
    return {b: quotas[b] - load[b] for b in sorted(quotas) if load[b] < quotas[b]}


def _scattered(places: int) -> list[int]:
    """Return the places in an order whose every beginning takes a little of every topic.

    Steps of the golden section keep clear of the period of any round robin.
    """
    step = next(s for s in count(int(places * _GOLDEN) + 1) if gcd(s, max(1, places)) == 1)
    return [turn * step % places for turn in range(places)]


def _repair_racks(board: PlacementState, quotas: Mapping[int, int]) -> int:
    """Move replicas off racks that have too many of a partition; return how many."""
    repairs = 0
    if not board.rule.applies:
        return repairs
    above = {broker: board.load[broker] - quota for broker, quota in quotas.items()}
    for index in range(len(board.replicas)):
        while crowded := [b for b in board.rule.crowded(board.replicas[index]) if b in above]:
            donor = max(crowded, key=lambda broker: (above[broker], broker))
            receiver = choose_receiver(board.replicas[index], donor, board.rule, above)
            if not board.may_move(index, donor, receiver):
                break
            board.move(index, donor, receiver)
            above[donor] -= 1
            above[receiver] += 1
            repairs += 1
    return repairs


def _even_out(board: PlacementState, quotas: Mapping[int, int], sinks: Collection[int]) -> None:
    """Move by chains what direct moves could not."""

    def above(broker: int) -> int:
        return board.load[broker] - quotas[broker]

    def are_uneven(donor: int, sink: int) -> bool:
        return above(sink) < 0 and above(sink) + 2 <= above(donor)

    for donor in sorted(quotas, key=lambda broker: (-above(broker), broker)):
        while needy := [broker for broker in sinks if are_uneven(donor, broker)]:
            if board.follow_chain(donor, needy) is None:
                break


def _place_rest(board: PlacementState, order: Sequence[int], drained: Collection[int]) -> None:
    """Move what is still on drained brokers to wherever there is a place."""
    for index in order:
        for donor in board.replicas[index]:
            if donor in drained:
                receiver = choose_receiver(board.replicas[index], donor, board.rule, board.load)
                board.move(index, donor, receiver)


def _finish(kind: PlanKind, assignments: Assignments, board: PlacementState, minimum: int) -> Plan:
    names, before = list(assignments), list(assignments.values())
    changed = [i for i in sorted(board.changed) if board.replicas[i] != before[i]]
    moves = sum(len({*board.replicas[i]} - {*before[i]}) for i in changed)
    return Plan(
        kind=kind,
        targets={names[i]: board.replicas[i] for i in changed},
        moves=moves,
        minimum=minimum,
        leader_changes=sum(board.replicas[i][0] != before[i][0] for i in changed),
        receivers=board.rule.receivers,
        loads=_loads(before, board),
    )


def _loads(before: list[tuple[int, ...]], board: PlacementState) -> dict[int, PlannedLoad]:
    had = Counter(chain.from_iterable(before))
    led = Counter(replicas[0] for replicas in before)
    leads = Counter(replicas[0] for replicas in board.replicas)
    everyone = sorted({*had, *board.load, *board.rule.racks})
    return {b: PlannedLoad(had[b], board.load[b], led[b], leads[b]) for b in everyone}
