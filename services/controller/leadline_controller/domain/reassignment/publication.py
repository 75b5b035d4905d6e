"""The ZooKeeper writes of reassignment actions: topic node, state nodes and intents (rule R13).

All changes of one topic go into one transaction, because they share its node. Each
change raises the leader epoch, so that brokers adopt the new replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.directories import kept_epochs
from leadline_common.elections import ElectionReason
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.domain.cluster import PartitionImage, TopicImage
from leadline_controller.domain.failover import StateDecision
from leadline_controller.domain.reassignment.machine import (
    Action,
    Finish,
    ReassignmentState,
    Shrink,
    apply_action,
)
from leadline_controller.domain.reassignment.queue import DueAction
from leadline_controller.domain.reassignment.steps import without


class TopicChange(msgspec.Struct, frozen=True):
    """The writes for one topic, in one transaction.

    `assignment` is None if the topic node does not change. The intents of `finished`
    partitions are deleted. The replicas in `drops` may be deleted afterwards. `before` and
    `after` are the audited assignments of the partitions whose assignment changes. `counts`
    counts the actions by kind.
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
    """Return the writes for the due actions of one topic's partitions."""
    by_number = {entry.topic_partition.partition: entry for entry in due}
    results = {n: apply_action(entry.state, entry.action) for n, entry in by_number.items()}
    before = {n: _row(entry.state) for n, entry in by_number.items()}
    after = {n: _row(result) for n, result in results.items()}
    changed = {n: result for n, result in results.items() if before[n] != after[n]}
    return TopicChange(
        topic=topic.name,
        assignment=_reassigned(topic.assignment, changed) if changed else None,
        decisions=[
            _decide(topic, entry, results[n], controller_epoch)
            for n, entry in by_number.items()
            if not isinstance(entry.action, Finish)
        ],
        finished=[entry.topic_partition for entry in due if _finishes(entry.action)],
        drops={
            n: entry.action.drops
            for n, entry in by_number.items()
            if isinstance(entry.action, Shrink)
        },
        before={str(n): before[n] for n in changed},
        after={str(n): after[n] for n in changed},
        counts=Counter(type(entry.action).__name__.lower() for entry in due),
    )


def _finishes(action: Action) -> bool:
    return isinstance(action, Finish) or (isinstance(action, Shrink) and action.finished)


def _row(state: ReassignmentState) -> dict[str, tuple[int, ...]]:
    return {"replicas": state.replicas, "adding": state.adding, "removing": state.removing}


def _reassigned(
    assignment: TopicAssignment, changed: Mapping[int, ReassignmentState]
) -> TopicAssignment:
    def merged(
        known: Mapping[int, tuple[int, ...]], new: Mapping[int, tuple[int, ...]]
    ) -> dict[int, tuple[int, ...]]:
        together = {**known, **new}
        return {number: together[number] for number in sorted(together) if together[number]}

    return msgspec.structs.replace(
        assignment,
        partitions=merged(assignment.partitions, {n: f.replicas for n, f in changed.items()}),
        adding=merged(assignment.adding, {n: f.adding for n, f in changed.items()}),
        removing=merged(assignment.removing, {n: f.removing for n, f in changed.items()}),
    )


def _decide(
    topic: TopicImage, due: DueAction, result: ReassignmentState, controller_epoch: int
) -> StateDecision:
    number = due.topic_partition.partition
    partition = topic.partitions[number]
    before = _state_of(partition)
    # The new state is later than the registrations of stale brokers, so that it must not
    # contain them (rule R9).
    isr = without(result.isr, due.state.stale)
    eligible = tuple(b for b in before.eligible if b in result.replicas)
    after = msgspec.structs.replace(
        before,
        leader=result.leader,
        leader_epoch=before.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        eligible=eligible,
        directory_epochs=kept_epochs(before.directory_epochs, (*isr, *eligible), {}),
    )
    is_moved = result.leader != before.leader
    reason = ElectionReason.REASSIGNED if is_moved else ElectionReason.UNCHANGED
    return StateDecision(topic.name, number, before, after, partition.version, reason)


def _state_of(partition: PartitionImage) -> PartitionState:
    if partition.state is None:
        raise AssertionError("a partition without a state has no action")
    return partition.state
