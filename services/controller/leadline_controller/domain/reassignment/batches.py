"""Which partitions begin a step now: a sliding window over all candidates (KIP-435).

Limits: at most P partitions are in flight, and at most min(L, P) of them in a step that
moves the leader. A partition leaves the window as soon as its step ends.

Method: steps that move a leader are admitted first, then steps that do not. If only
leader movements are left, the window may stay partly empty. Partitions that have taken
a step come first, so that few are incomplete; then the order of requests; then topic
and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def collect_reassignment_batch(
    candidates: Iterable[StepCandidate],
    in_flight: Mapping[TopicPartition, bool],
    limits: ReassignmentLimits,
) -> list[TopicPartition]:
    """Return the partitions that begin their next step now, in order (KIP-435).

    `in_flight` maps partitions with a step in progress to whether it moves the leader.
    """
    waiting = [c for c in candidates if c.topic_partition not in in_flight]
    slots = _free_slots(limits.partition_movements, len(in_flight), len(waiting))
    movers = sum(in_flight.values())
    leader_slots = _free_slots(limits.leader_movements, movers, len(waiting))
    if not slots:
        return []
    waiting.sort(key=lambda c: (not c.started, c.request, c.topic_partition))
    leading = [c.topic_partition for c in waiting if c.leader_step][: min(leader_slots, slots)]
    others = [c.topic_partition for c in waiting if not c.leader_step]
    return leading + others[: slots - len(leading)]


def _free_slots(limit: int | None, taken: int, wanted: int) -> int:
    return wanted if limit is None else max(0, limit - taken)
