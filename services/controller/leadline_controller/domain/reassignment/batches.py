"""Which partitions may begin a step now: a sliding window over all that want to (seed 5).

Limits: at most P partitions in flight, at most min(L, P) of them with a step that
moves the leader. A partition's place is free as soon as its step has ended.

Method: steps that move a leader take their places first; those that are still free
go to steps that move none. Where only leader movements are left, places stay empty.
Partitions that have begun come first, so that few are half-way; then the order of
requests; then topic and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.reassignments import ReassignmentPhase
from leadline_controller.domain.reassignment.machine import ReassignmentState, phase_of, plan_step


class ReassignmentLimits(msgspec.Struct, frozen=True):
    """The settings `reassignment.max.concurrent.….movements`; None is no limit.

    `replica_movements` is per partition and step, the others are cluster-wide.
    """

    replica_movements: int | None = None
    partition_movements: int | None = None
    leader_movements: int | None = None


class StepCandidate(msgspec.Struct, frozen=True, gc=False):
    """A partition whose next step is neither idle nor begun.

    `request` orders the requests. `started` says that steps of it are done already,
    `leader_step` that the next one moves the leader.
    """

    topic_partition: TopicPartition
    request: int
    started: bool
    leader_step: bool


def candidate_for(
    topic_partition: TopicPartition, request: int, state: ReassignmentState
) -> StepCandidate | None:
    """Return a partition as a candidate, or None where no step can begin now."""
    if phase_of(state) is not ReassignmentPhase.INIT:
        return None
    step = plan_step(state)
    if step.is_idle:
        return None
    return StepCandidate(topic_partition, request, state.replicas != state.start, step.leader_step)


def collect_reassignment_batch(
    candidates: Iterable[StepCandidate],
    in_flight: Mapping[TopicPartition, bool],
    limits: ReassignmentLimits,
) -> list[TopicPartition]:
    """Return the partitions that begin their next step now, in order.

    `in_flight` maps those with a running step to whether it moves the leader.
    """
    waiting = [c for c in candidates if c.topic_partition not in in_flight]
    places = _free_places(limits.partition_movements, len(in_flight), len(waiting))
    movers = sum(in_flight.values())
    leader_places = _free_places(limits.leader_movements, movers, len(waiting))
    if not places:
        return []
    waiting.sort(key=lambda c: (not c.started, c.request, c.topic_partition))
    leading = [c.topic_partition for c in waiting if c.leader_step][: min(leader_places, places)]
    others = [c.topic_partition for c in waiting if not c.leader_step]
    return leading + others[: places - len(leading)]


def _free_places(limit: int | None, taken: int, wanted: int) -> int:
    return wanted if limit is None else max(0, limit - taken)
