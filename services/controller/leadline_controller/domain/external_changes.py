"""Changes that others made in ZooKeeper, recognized by comparison with the image.

Operators may edit topics, configs and states directly. Such an edit has no audit entry of
its own, so the controller that finds it records one, with the actor `external`. The
comparison takes what was read before the image applies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.znodes import PartitionState, StateChange, TopicAssignment
from leadline_controller.domain.cluster import (
    NO_NODE,
    Change,
    ClusterImage,
    ConfigsSet,
    StateSet,
    TopicImage,
    TopicSet,
)
from leadline_controller.domain.history import (
    ASSIGNMENT,
    EXTERNAL,
    TOPIC_DELETED,
    PastCluster,
    PastPartition,
    PastTopic,
)

TOPIC_CREATED = "topic_created"
TOPIC_CHANGED = "topic_changed"
CONFIGS_CHANGED = "configs_changed"
STATES_CHANGED = "states_changed"


class ExternalChange(msgspec.Struct, frozen=True):
    """What an audit entry says of one change.

    `zxid` is the transaction that wrote the node, 0 if that is unknown because the node is gone.
    """

    kind: str
    resource: Mapping[str, Any]
    before: Any
    after: Any
    zxid: int = 0
    reason: str = ""


def topic_gone(name: str, topic_id: str) -> ExternalChange:
    """Describe a topic whose node was deleted without a tombstone (rule R12)."""
    reason = "its node was deleted in ZooKeeper; brokers keep its replicas for stray.grace.ms"
    return ExternalChange(TOPIC_DELETED, _resource(name, topic_id), None, None, reason=reason)


def topic_changes(image: ClusterImage, changes: Sequence[Change]) -> list[ExternalChange]:
    """Describe how topics and configs that were read differ from the image."""
    configs = {change.topic: change.configs for change in changes if isinstance(change, ConfigsSet)}
    found: list[ExternalChange] = []
    created = set()
    for change in changes:
        if isinstance(change, TopicSet):
            known = image.topics.get(change.topic)
            if known is not None and _is_same(known, change):
                found += _assignment_change(known, change)
                continue
            if known is not None and not known.deleting:
                found.append(topic_gone(known.name, known.topic_id))
            created.add(change.topic)
            found.append(_created(change, configs.get(change.topic, {})))
        elif isinstance(change, ConfigsSet) and change.topic not in created:
            found += _configs_change(image, change)
    return found


def _is_same(known: TopicImage, change: TopicSet) -> bool:
    return known.topic_id in ("", change.assignment.topic_id)


def _created(change: TopicSet, configs: Mapping[str, str]) -> ExternalChange:
    after = {ASSIGNMENT: change.assignment.partitions, "configs": configs}
    resource = _resource(change.topic, change.assignment.topic_id)
    return ExternalChange(TOPIC_CREATED, resource, None, after, change.zxid)


def _assignment_change(known: TopicImage, change: TopicSet) -> Iterator[ExternalChange]:
    before, after = known.assignment, change.assignment
    if known.deleting or change.version <= known.version or before == after:
        return
    numbers = [
        number
        for number in sorted({*before.partitions, *after.partitions})
        if _row(before, number) != _row(after, number)
    ]
    resource = _resource(known.name, after.topic_id)
    yield ExternalChange(
        TOPIC_CHANGED, resource, _rows(before, numbers), _rows(after, numbers), change.zxid
    )


def _row(topic: TopicAssignment, number: int) -> object:
    lists = (topic.partitions, topic.adding, topic.removing)
    return [tuple(found.get(number, ())) for found in lists]


def _rows(topic: TopicAssignment, numbers: Iterable[int]) -> dict[str, Any]:
    return {ASSIGNMENT: {number: topic.partitions.get(number) for number in numbers}}


def _configs_change(image: ClusterImage, change: ConfigsSet) -> Iterator[ExternalChange]:
    known = image.topics.get(change.topic)
    if known is None or known.deleting:
        return
    before, after = dict(known.configs), dict(change.configs)
    if (before, dict(known.config_problems)) == (after, dict(change.problems)):
        return
    resource = _resource(known.name, known.topic_id)
    zxid = 0 if change.version == NO_NODE else change.zxid
    reason = "; ".join(change.problems.values())
    yield ExternalChange(CONFIGS_CHANGED, resource, before, after, zxid, reason)


def _resource(name: str, topic_id: str) -> dict[str, Any]:
    return {"topic": name, "topic_id": topic_id}


# -- states ------------------------------------------------------------------------------


def suspicious_states(image: ClusterImage, states: Iterable[StateSet]) -> list[StateSet]:
    """Return the states that no leader would have written: a leader changes the ISR only."""
    return [change for change in changed_states(image, states) if not _is_of_leader(image, change)]


def changed_states(image: ClusterImage, states: Iterable[StateSet]) -> list[StateSet]:
    """Return the states that the image does not have yet, of partitions that will stay."""
    found = []
    for change in states:
        topic = image.topics.get(change.topic)
        known = topic.active_partition(change.partition) if topic else None
        if topic is None or known is None or topic.deleting or change.version <= known.version:
            continue
        found.append(change)
    return found


def _is_of_leader(image: ClusterImage, change: StateSet) -> bool:
    known = image.partition(TopicPartition(change.topic, change.partition))
    state = known.state if known else None
    return state is not None and _leadership(state) == _leadership(change.state)


def _leadership(state: PartitionState) -> tuple[int, int, int]:
    return state.leader, state.leader_epoch, state.controller_epoch


def state_row(image: ClusterImage, change: StateSet) -> StateChange:
    """Return the row of an audit entry about a state that others wrote."""
    known = image.partition(TopicPartition(change.topic, change.partition))
    before = known.state if known else None
    return StateChange(
        change.topic,
        change.partition,
        EXTERNAL,
        None if before is None else (before.leader, before.leader_epoch, before.isr),
        (change.state.leader, change.state.leader_epoch, change.state.isr),
        change.version,
    )


# -- since the last controller -------------------------------------------------------------


class Differences(msgspec.Struct, frozen=True):
    """How the cluster differs from its history."""

    changes: list[ExternalChange]
    states: list[StateChange]

    def __bool__(self) -> bool:
        return bool(self.changes or self.states)


def differences(past: PastCluster, image: ClusterImage) -> Differences:
    """Compare the image with the present as the audit has it.

    What is being deleted is left out: the audit ends with the order.
    """
    gone = sorted(past.topics.keys() - image.topics.keys())
    changes = [topic_gone(name, past.topics[name].topic_id) for name in gone]
    states: list[StateChange] = []
    for topic in image.topics.values():
        if topic.deleting or not topic.topic_id:
            continue
        known = past.topics.get(topic.name)
        if known is not None and known.topic_id not in ("", topic.topic_id):
            changes.append(topic_gone(topic.name, known.topic_id))
            known = None
        changes += _topic_difference(known, topic)
        states += _state_differences(known or PastTopic(), topic)
    return Differences(changes, states)


def _topic_difference(known: PastTopic | None, topic: TopicImage) -> Iterator[ExternalChange]:
    now = topic.assignment.partitions
    if known is None or not (known.topic_id or known.zxid):  # or only its states are audited
        after: dict[str, Any] = {ASSIGNMENT: now, "configs": topic.configs}
        yield ExternalChange(
            TOPIC_CREATED, _resource(topic.name, topic.topic_id), None, after, topic.zxid
        )
        return
    then = {number: partition.replicas for number, partition in known.partitions.items()}
    numbers = [n for n in sorted({*then, *now}) if tuple(then.get(n, ())) != tuple(now.get(n, ()))]
    # An earlier version of the node only lags behind a write whose answer was lost.
    if numbers and topic.zxid > known.zxid:
        yield ExternalChange(
            TOPIC_CHANGED,
            _resource(topic.name, topic.topic_id),
            {ASSIGNMENT: {n: then.get(n) for n in numbers}},
            {ASSIGNMENT: {n: now.get(n) for n in numbers}},
            topic.zxid,
        )


def _state_differences(known: PastTopic, topic: TopicImage) -> Iterator[StateChange]:
    """Yield the states that are later than the audit has them.

    Earlier ones only lag behind: a leader has written its ISR since.
    """
    for number, partition in topic.active_partitions.items():
        then = known.partitions.get(number, PastPartition())
        state = partition.state
        if state is None or partition.version <= then.state_version:
            continue
        before = (then.leader, then.leader_epoch, then.isr) if then.state_version >= 0 else None
        after = (state.leader, state.leader_epoch, state.isr)
        yield StateChange(topic.name, number, EXTERNAL, before, after, partition.version)
