"""Which partitions begin a step now: a sliding window over all candidates (KIP-435).

Limits: at most P partitions are in flight, and at most min(L, P) of them in a step that
moves the leader. A partition leaves the window as soon as its step ends.

Method: steps that move a leader are admitted first, then steps that do not. If only
leader movements are left, the window may stay partly empty. Partitions that have taken
a step come first, so that few are incomplete; then the order of requests; then topic
and partition.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeAlias

import msgspec

from leadline_client.wire import TopicPartition
from leadline_controller.domain.reassignment.machine import (
    Expand,
    ReassignmentState,
    moves_leader,
    next_action,
)


class ReassignmentLimits(msgspec.Struct, frozen=True):
    """The configs `reassignment.max.concurrent.….movements`; None means no limit.

    `replica_movements` limits one step of one partition, the others the whole cluster.
    """

    replica_movements: int | None = None
    partition_movements: int | None = None
    leader_movements: int | None = None


class StepCandidate(msgspec.Struct, frozen=True, gc=False):
    """A partition that could begin its next step.

    `request` is the position of its request. `started` is true if earlier steps are done,
    `leader_step` if the next step moves the leader.
    """

    topic_partition: TopicPartition
    request: int
    started: bool
    leader_step: bool


def candidate_for(
    topic_partition: TopicPartition, request: int, state: ReassignmentState
) -> StepCandidate | None:
    """Return a partition as a candidate, or None if it cannot begin a step now."""
    if not isinstance(next_action(state), Expand):
        return None
    started = state.replicas != state.start
    return StepCandidate(topic_partition, request, started, moves_leader(state))


_Place: TypeAlias = tuple[bool, int, TopicPartition]
"""The place of a candidate in the order: not started, request, partition."""


class WaitingSteps:
    """The candidates in the order in which their steps begin, those that move a leader apart.

    The order is kept, not made for each batch: there may be 100,000 candidates of which two begin.
    """

    def __init__(self, candidates: Iterable[StepCandidate] = ()) -> None:
        self._places: dict[TopicPartition, tuple[_Place, bool]] = {}
        self._leading: list[_Place] = []
        self._others: list[_Place] = []
        for candidate in candidates:
            self.put(candidate)

    def __len__(self) -> int:
        return len(self._places)

    def put(self, candidate: StepCandidate) -> None:
        """Add a candidate, or replace it."""
        topic_partition = candidate.topic_partition
        place = (not candidate.started, candidate.request, topic_partition)
        known = place, candidate.leader_step
        if self._places.get(topic_partition) != known:
            self.drop(topic_partition)
            self._places[topic_partition] = known
            insort(self._ordered(leading=candidate.leader_step), place)

    def drop(self, topic_partition: TopicPartition) -> None:
        """Remove a partition if it is a candidate."""
        known = self._places.pop(topic_partition, None)
        if known is not None:
            place, leading = known
            ordered = self._ordered(leading=leading)
            del ordered[bisect_left(ordered, place)]

    def first(self, count: int, *, leading: bool) -> list[TopicPartition]:
        """Return the first of those that move a leader, or of those that do not."""
        return [place[-1] for place in islice(self._ordered(leading=leading), count)]

    def _ordered(self, *, leading: bool) -> list[_Place]:
        return self._leading if leading else self._others


def collect_reassignment_batch(
    waiting: WaitingSteps, in_flight: Mapping[TopicPartition, bool], limits: ReassignmentLimits
) -> list[TopicPartition]:
    """Return the partitions that begin their next step now, in order (KIP-435).

    `in_flight` maps partitions with a step in progress to whether it moves the leader.
    """
    slots = _free_slots(limits.partition_movements, len(in_flight), len(waiting))
    leader_slots = _free_slots(limits.leader_movements, sum(in_flight.values()), len(waiting))
    leading = waiting.first(min(leader_slots, slots), leading=True)
    return leading + waiting.first(slots - len(leading), leading=False)


def _free_slots(limit: int | None, taken: int, wanted: int) -> int:
    return wanted if limit is None else max(0, limit - taken)
