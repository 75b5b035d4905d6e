"""A greedy proposal that balances leader load, then disks, with few copies. Pure.

Goals, by priority: never fewer replicas or worse racks; no skew greater than before; less skew of
leaders; less skew of disks; few bytes copied.

Method: one step at a time, from the most loaded broker that can give load to a less loaded one.
Leadership goes to a follower first, which copies nothing. When that no longer helps, replicas are
moved, but only from the most loaded broker of all, and the step with the best gain for each byte
first. A step from `a` to `b` is taken only if `b` ends below the former load of `a`. So the sum of
squares falls with each step and the peak never rises: the search terminates, and never makes
things worse. The result is the placement when no step is left within the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from leadline_client.wire import TopicPartition
from leadline_spark.jobs.balancing.balance_state import (
    BalanceState,
    PartitionLoad,
    Replicas,
    Skew,
    excess,
)


@dataclass(frozen=True, slots=True)
class BalanceLimits:
    """The limits of a proposal: replicas and bytes to copy at most; None for no limit.

    A skew of at most `tolerance` counts as balanced.
    """

    max_moves: int = 20
    max_bytes: int | None = None
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True)
class BrokerShare:
    """The leader load of a broker in bytes/s, and its disk usage in bytes."""

    leader_rate: float
    disk: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """New replicas for some partitions, with their costs and effects.

    `moves` counts the replicas to copy, `swaps` the partitions of which only the leader changes.
    """

    targets: Mapping[TopicPartition, Replicas]
    moves: int
    swaps: int
    bytes_to_move: int
    before: Skew
    after: Skew
    shares_before: Mapping[int, BrokerShare] = field(default_factory=dict)
    shares_after: Mapping[int, BrokerShare] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Step:
    gain: float
    topic_partition: TopicPartition
    replicas: Replicas


def propose(
    partitions: Iterable[PartitionLoad],
    members: Collection[int],
    racks: Mapping[int, str | None],
    limits: BalanceLimits,
) -> Proposal:
    """Return a proposal that balances `members`; the same for the same arguments."""
    state = BalanceState(partitions, members, racks)
    before, shares_before = state.skew(), _shares(state)
    _even_leaders(state, limits)
    _even_disks(state, limits)
    targets = state.changed()
    return Proposal(
        targets=targets,
        moves=state.moves,
        swaps=sum(not state.copies(tp, replicas) for tp, replicas in targets.items()),
        bytes_to_move=state.bytes_to_move,
        before=before,
        after=state.skew(),
        shares_before=shares_before,
        shares_after=_shares(state),
    )


def _even_leaders(state: BalanceState, limits: BalanceLimits) -> None:
    rates = state.leader_rate

    def choose() -> _Step | None:
        step = _first(_handovers(state, donor) for donor in _by_load(rates))
        return step or _first(_leader_moves(state, donor, limits) for donor in _peaks(rates))

    _even_out(state, rates, limits.tolerance, choose)


def _even_disks(state: BalanceState, limits: BalanceLimits) -> None:
    def choose() -> _Step | None:
        return _first(_disk_moves(state, donor, limits) for donor in _peaks(state.disk))

    _even_out(state, state.disk, limits.tolerance, choose)


def _even_out(
    state: BalanceState,
    loads: Mapping[int, float],
    tolerance: float,
    choose: Callable[[], _Step | None],
) -> None:
    """Take steps while there are any; then undo the last ones that did not lower the peak."""
    peak = max(loads.values(), default=0)
    idle: list[tuple[TopicPartition, Replicas]] = []
    while excess(loads.values()) > tolerance and (step := choose()) is not None:
        idle.append((step.topic_partition, state.replicas[step.topic_partition]))
        state.set(step.topic_partition, step.replicas)
        if max(loads.values()) < peak:
            peak = max(loads.values())
            idle.clear()
    for topic_partition, replicas in reversed(idle):
        state.set(topic_partition, replicas)


def _by_load(loads: Mapping[int, float]) -> list[int]:
    """Return the brokers, the most loaded first."""
    return sorted(loads, key=lambda broker: (-loads[broker], broker))


def _peaks(loads: Mapping[int, float]) -> list[int]:
    """Return the most loaded brokers: steps from others cost bytes and lower no peak."""
    most = max(loads.values())
    return [broker for broker in sorted(loads) if loads[broker] >= most]


def _first(choices: Iterable[Iterator[_Step]]) -> _Step | None:
    """Return the best step of the first donor that has any."""
    for steps in choices:
        best = max(steps, key=lambda step: step.gain, default=None)
        if best is not None:
            return best
    return None


def _handovers(state: BalanceState, donor: int) -> Iterator[_Step]:
    """Yield the steps that move leadership to a follower."""
    rates = state.leader_rate
    for load in state.led_by(donor):
        replicas = state.replicas[load.topic_partition]
        for receiver in state.followers(load):
            gain = _relief(rates[donor], rates[receiver], load.rate)
            if gain > 0:
                yield _Step(gain, load.topic_partition, _swapped(replicas, receiver))


def _leader_moves(state: BalanceState, donor: int, limits: BalanceLimits) -> Iterator[_Step]:
    """Yield the steps that move a leader replica, without exceeding the fullest disk."""
    rates, fullest = state.leader_rate, max(state.disk.values())
    for load in state.led_by(donor):
        for receiver in state.receivers(load, donor):
            gain = _relief(rates[donor], rates[receiver], load.rate)
            if gain <= 0 or state.disk[receiver] + load.size > fullest:
                continue
            replicas = _replaced(state.replicas[load.topic_partition], donor, receiver)
            if _affordable(state, load, replicas, limits):
                yield _Step(gain / (load.size + 1), load.topic_partition, replicas)


def _disk_moves(state: BalanceState, donor: int, limits: BalanceLimits) -> Iterator[_Step]:
    """Yield the steps that move a replica to a less full disk, without raising the leader peak."""
    busiest = max(state.leader_rate.values())
    for load in state.held_by(donor):
        rate = load.rate if state.replicas[load.topic_partition][0] == donor else 0.0
        for receiver in state.receivers(load, donor):
            gain = _relief(state.disk[donor], state.disk[receiver], load.size)
            if gain <= 0 or (rate and state.leader_rate[receiver] + rate > busiest):
                continue
            replicas = _replaced(state.replicas[load.topic_partition], donor, receiver)
            if _affordable(state, load, replicas, limits):
                yield _Step(gain, load.topic_partition, replicas)


def _relief(donor: float, receiver: float, amount: float) -> float:
    """Return how far the sum of squares falls, 0 if the receiver would be as loaded."""
    helps = amount > 0 and receiver + amount < donor
    return amount * (donor - receiver - amount) if helps else 0.0


def _affordable(
    state: BalanceState, load: PartitionLoad, replicas: Replicas, limits: BalanceLimits
) -> bool:
    more = state.copies(load.topic_partition, replicas) - state.copies(
        load.topic_partition, state.replicas[load.topic_partition]
    )
    moves, size = state.moves + more, state.bytes_to_move + more * load.size
    return moves <= limits.max_moves and (limits.max_bytes is None or size <= limits.max_bytes)


def _swapped(replicas: Replicas, leader: int) -> Replicas:
    """Return the replicas with `leader` first; the two change places."""
    first, *others = replicas
    return (leader, *(first if broker == leader else broker for broker in others))


def _replaced(replicas: Replicas, donor: int, receiver: int) -> Replicas:
    return tuple(receiver if broker == donor else broker for broker in replicas)


def _shares(state: BalanceState) -> dict[int, BrokerShare]:
    return {b: BrokerShare(state.leader_rate[b], state.disk[b]) for b in state.members}
