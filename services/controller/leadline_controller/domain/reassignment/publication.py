"""What actions change in ZooKeeper: the topic's node, states, intents (rule R13).

The changes of one topic go into one transaction, because they share its node. A
leader epoch rises with each of them, so that brokers take up the new replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.elections import ElectionReason
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.domain.cluster import PartitionImage, TopicImage
from leadline_controller.domain.failover import StateDecision
from leadline_controller.domain.reassignment.machine import (
    Finish,
    ReassignmentState,
    Shrink,
    apply_action,
)
from leadline_controller.domain.reassignment.queue import DueAction
from leadline_controller.domain.reassignment.steps import without


class TopicChange(msgspec.Struct, frozen=True):
    """What is to be written for one topic, in one transaction.

    `assignment` is None where the topic's node stays. `finished` are partitions
    whose intents go. `drops` are the replicas that may be deleted afterwards. `before` and
    `after` tell the assignment of each partition that it changes for, `counts`
    how often each kind of action is taken.
    """

    topic: str
    assignment: TopicAssignment | None
    decisions: list[StateDecision]
    finished: list[TopicPartition]
    drops: Mapping[int, tuple[int, ...]]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    counts: Mapping[str, int]


def publish_actions(
    topic: TopicImage, due: Sequence[DueAction], controller_epoch: int
) -> TopicChange:
    """Turn what is due for partitions of one topic into what is to be written."""
    results = {one.topic_partition.partition: apply_action(one.state, one.action) for one in due}
    changed = {
        one.topic_partition.partition: results[one.topic_partition.partition]
        for one in due
        if _assigned(one.state) != _assigned(results[one.topic_partition.partition])
    }
    return TopicChange(
        topic=topic.name,
        assignment=_reassigned(topic.assignment, changed) if changed else None,
        decisions=[
            _decide(topic, one, results[one.topic_partition.partition], controller_epoch)
            for one in due
            if not isinstance(one.action, Finish)
        ],
        finished=[one.topic_partition for one in due if _finishes(one)],
        drops={
            one.topic_partition.partition: one.action.drops
            for one in due
            if isinstance(one.action, Shrink)
        },
        before={
            str(d.topic_partition.partition): _row(d.state)
            for d in due
            if d.topic_partition.partition in changed
        },
        after={str(number): _row(state) for number, state in changed.items()},
        counts=Counter(type(one.action).__name__.lower() for one in due),
    )


def _finishes(one: DueAction) -> bool:
    return isinstance(one.action, Finish) or (
        isinstance(one.action, Shrink) and one.action.finished
    )


def _assigned(state: ReassignmentState) -> tuple[tuple[int, ...], ...]:
    return state.replicas, state.adding, state.removing


def _row(state: ReassignmentState) -> dict[str, tuple[int, ...]]:
    return {"replicas": state.replicas, "adding": state.adding, "removing": state.removing}


def _reassigned(
    assignment: TopicAssignment, changed: Mapping[int, ReassignmentState]
) -> TopicAssignment:
    def merged(
        known: Mapping[int, tuple[int, ...]], news: Mapping[int, tuple[int, ...]]
    ) -> dict[int, tuple[int, ...]]:
        together = {**known, **news}
        return {number: together[number] for number in sorted(together) if together[number]}

    return msgspec.structs.replace(
        assignment,
        partitions=merged(assignment.partitions, {n: f.replicas for n, f in changed.items()}),
        adding=merged(assignment.adding, {n: f.adding for n, f in changed.items()}),
        removing=merged(assignment.removing, {n: f.removing for n, f in changed.items()}),
    )


def _decide(
    topic: TopicImage, one: DueAction, result: ReassignmentState, controller_epoch: int
) -> StateDecision:
    number = one.topic_partition.partition
    partition = topic.partitions[number]
    before = _state_of(partition)
    after = msgspec.structs.replace(
        before,
        leader=result.leader,
        leader_epoch=before.leader_epoch + 1,
        # Written now, the state is later than their registration: it must not name them (R9).
        isr=without(result.isr, one.state.stale),
        controller_epoch=controller_epoch,
        eligible=tuple(b for b in before.eligible if b in result.replicas),
    )
    is_moved = result.leader != before.leader
    reason = ElectionReason.REASSIGNED if is_moved else ElectionReason.UNCHANGED
    return StateDecision(topic.name, number, before, after, partition.version, reason)


def _state_of(partition: PartitionImage) -> PartitionState:
    if partition.state is None:
        raise AssertionError("no action is decided for a partition that has no state")
    return partition.state
