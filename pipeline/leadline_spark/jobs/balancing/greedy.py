"""A proposal that evens out what leaders move, then disks, copying as little as it can. Pure.

Goals, in order: never fewer replicas, never worse racks; no skew greater than before; less skew of
leaders; less skew of disks; few bytes copied.

Method: one step after the other, each from the most loaded broker that can give something to one
that has less. Leadership is handed to a follower first, which copies nothing; only when that helps
no more are replicas moved, and then only from the most loaded of all, the best relief for each
byte first. A step from `a` to `b` is taken only if `b` ends below where `a` was, so the sum of
squares falls with each and the peak never rises: it ends, and never makes things worse. What
stands when the limits are reached is the answer.
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
    """How far a proposal may go: replicas and bytes (None: any) to copy, at most.

    A skew of `tolerance` or less is good enough.
    """

    max_moves: int = 20
    max_bytes: int | None = None
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True)
class BrokerShare:
    """What a broker leads (bytes/s) and holds (bytes)."""

    leader_rate: float
    disk: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """New replicas for some partitions, and what they cost and bring.

    `moves` counts replicas that are copied, `swaps` partitions of which only the leader changes.
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
    """Return how to even out the load over `members`; the same answer for the same arguments."""
    board = BalanceState(partitions, members, racks)
    before, shares_before = board.skew(), _shares(board)
    _even_leaders(board, limits)
    _even_disks(board, limits)
    targets = board.changed()
    return Proposal(
        targets=targets,
        moves=board.moves,
        swaps=sum(
            not board.copies(topic_partition, replicas)
            for topic_partition, replicas in targets.items()
        ),
        bytes_to_move=board.bytes_to_move,
        before=before,
        after=board.skew(),
        shares_before=shares_before,
        shares_after=_shares(board),
    )


def _even_leaders(board: BalanceState, limits: BalanceLimits) -> None:
    rates = board.leader_rate

    def choose() -> _Step | None:
        step = _first(_handovers(board, donor) for donor in _by_load(rates))
        return step or _first(_leader_moves(board, donor, limits) for donor in _peaks(rates))

    _even_out(board, rates, limits.tolerance, choose)


def _even_disks(board: BalanceState, limits: BalanceLimits) -> None:
    def choose() -> _Step | None:
        return _first(_disk_moves(board, donor, limits) for donor in _peaks(board.disk))

    _even_out(board, board.disk, limits.tolerance, choose)


def _even_out(
    board: BalanceState,
    loads: Mapping[int, float],
    tolerance: float,
    choose: Callable[[], _Step | None],
) -> None:
    """Take steps as long as there are any; in the end take back those that lowered no peak."""
    peak = max(loads.values(), default=0)
    idle: list[tuple[TopicPartition, Replicas]] = []
    while excess(loads.values()) > tolerance and (step := choose()) is not None:
        idle.append((step.topic_partition, board.replicas[step.topic_partition]))
        board.set(step.topic_partition, step.replicas)
        if max(loads.values()) < peak:
            peak = max(loads.values())
            idle.clear()
    for topic_partition, replicas in reversed(idle):
        board.set(topic_partition, replicas)


def _by_load(loads: Mapping[int, float]) -> list[int]:
    """Return brokers, the most loaded first."""
    return sorted(loads, key=lambda broker: (-loads[broker], broker))


def _peaks(loads: Mapping[int, float]) -> list[int]:
    """Return the brokers that nobody exceeds: what others give lowers no peak, and costs bytes."""
    most = max(loads.values())
    return [broker for broker in sorted(loads) if loads[broker] >= most]


def _first(choices: Iterable[Iterator[_Step]]) -> _Step | None:
    """Return the best step of the first donor that has any."""
    for steps in choices:
        best = max(steps, key=lambda step: step.gain, default=None)
        if best is not None:
            return best
    return None


def _handovers(board: BalanceState, donor: int) -> Iterator[_Step]:
    """Yield the ways to hand leadership to a follower."""
    rates = board.leader_rate
    for one in board.led_by(donor):
        for receiver in board.followers(one):
            gain = _relief(rates[donor], rates[receiver], one.rate)
            if gain > 0:
                yield _Step(
                    gain,
                    one.topic_partition,
                    _swapped(board.replicas[one.topic_partition], receiver),
                )


def _leader_moves(board: BalanceState, donor: int, limits: BalanceLimits) -> Iterator[_Step]:
    """Yield the ways to move a leader elsewhere, without a fuller disk than the fullest is."""
    rates, fullest = board.leader_rate, max(board.disk.values())
    for one in board.led_by(donor):
        for receiver in board.receivers(one, donor):
            gain = _relief(rates[donor], rates[receiver], one.rate)
            if gain <= 0 or board.disk[receiver] + one.size > fullest:
                continue
            replicas = _replaced(board.replicas[one.topic_partition], donor, receiver)
            if _affordable(board, one, replicas, limits):
                yield _Step(gain / (one.size + 1), one.topic_partition, replicas)


def _disk_moves(board: BalanceState, donor: int, limits: BalanceLimits) -> Iterator[_Step]:
    """Yield the ways to move a replica to a disk with more room, leaders where no peak rises."""
    busiest = max(board.leader_rate.values())
    for one in board.held_by(donor):
        rate = one.rate if board.replicas[one.topic_partition][0] == donor else 0.0
        for receiver in board.receivers(one, donor):
            gain = _relief(board.disk[donor], board.disk[receiver], one.size)
            if gain <= 0 or (rate and board.leader_rate[receiver] + rate > busiest):
                continue
            replicas = _replaced(board.replicas[one.topic_partition], donor, receiver)
            if _affordable(board, one, replicas, limits):
                yield _Step(gain, one.topic_partition, replicas)


def _relief(donor: float, receiver: float, load: float) -> float:
    """Return by how much the sum of squares falls; nothing where the receiver would be as full."""
    return load * (donor - receiver - load) if load > 0 and receiver + load < donor else 0.0


def _affordable(
    board: BalanceState, one: PartitionLoad, replicas: Replicas, limits: BalanceLimits
) -> bool:
    more = board.copies(one.topic_partition, replicas) - board.copies(
        one.topic_partition, board.replicas[one.topic_partition]
    )
    moves, size = board.moves + more, board.bytes_to_move + more * one.size
    return moves <= limits.max_moves and (limits.max_bytes is None or size <= limits.max_bytes)


def _swapped(replicas: Replicas, leader: int) -> Replicas:
    """Return replicas with another one first; the two change places."""
    first, *others = replicas
    return (leader, *(first if broker == leader else broker for broker in others))


def _replaced(replicas: Replicas, donor: int, receiver: int) -> Replicas:
    return tuple(receiver if broker == donor else broker for broker in replicas)


def _shares(board: BalanceState) -> dict[int, BrokerShare]:
    return {b: BrokerShare(board.leader_rate[b], board.disk[b]) for b in board.members}
