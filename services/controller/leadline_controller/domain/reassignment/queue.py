"""All reassignments under way, and what is due for them now (seed 1 F: reassigned_partition_map).

An queue holds one entry for each intent. It follows from the intents and the
image alone, so that a new controller has the same one. What was found out about a
partition is kept until it changes: with thousands of reassignments and few in
flight, a step costs what the partitions in flight cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.reassignments import ReassignmentPhase, WaitReason
from leadline_common.tasks import Intent
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.failover import StaleFinder, stale_finder
from leadline_controller.domain.reassignment.batches import (
    ReassignmentLimits,
    StepCandidate,
    collect_reassignment_batch,
)
from leadline_controller.domain.reassignment.machine import (
    Action,
    Elect,
    Expand,
    ReassignmentState,
    Wait,
    moves_leader,
    next_action,
    phase_of,
)
from leadline_controller.domain.reassignment.steps import order_replicas, without


class DueAction(msgspec.Struct, frozen=True):
    """What to write for a partition, and the state that it follows from."""

    topic_partition: TopicPartition
    state: ReassignmentState
    action: Action


class QueuedReassignment:
    """One reassignment; `version` is that of its intent, `request` orders the requests.

    `state` are None while the partition cannot be acted on: its topic is unknown,
    being deleted, or not the one that was meant. `moves_leader` speaks of the running
    step, or of the next one.
    """

    __slots__ = (
        "action",
        "intent",
        "moves_leader",
        "request",
        "state",
        "topic_partition",
        "version",
    )

    def __init__(
        self, topic_partition: TopicPartition, intent: Intent, version: int, request: int
    ) -> None:
        self.topic_partition = topic_partition
        self.intent = intent
        self.version = version
        self.request = request
        self.state: ReassignmentState | None = None
        self.action: Action = Wait(WaitReason.PARTITION_OFFLINE)
        self.moves_leader = False

    @property
    def is_running(self) -> bool:
        """Whether a step is under way."""
        return self.state is not None and self.state.is_running

    @property
    def phase(self) -> ReassignmentPhase:
        """How far the reassignment is."""
        return ReassignmentPhase.WAITING if self.state is None else phase_of(self.state)

    def update(self, state: ReassignmentState | None) -> None:
        """Take in what is so now, and conclude what is to be done."""
        was_mover = self.is_running and self.moves_leader
        self.state = state
        if state is None:
            self.action = Wait(WaitReason.PARTITION_OFFLINE)
            self.moves_leader = False
            return
        self.action = next_action(state)
        # A step that has moved the leader counts as one that does until it ends.
        self.moves_leader = moves_leader(state) or (was_mover and state.is_running)


class ReassignmentQueue:
    """The reassignments by partition."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, QueuedReassignment] = {}
        self._by_topic: dict[str, dict[TopicPartition, None]] = {}
        self._by_task: dict[str, dict[TopicPartition, None]] = {}
        self._touched: dict[TopicPartition, None] = {}
        self._running: dict[TopicPartition, None] = {}
        self._circumstances: object = None
        self._has_news = False

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[QueuedReassignment]:
        return iter(self._entries.values())

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._entries

    def get(self, topic_partition: TopicPartition) -> QueuedReassignment | None:
        """Return a partition's reassignment, if there is one."""
        return self._entries.get(topic_partition)

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that are being reassigned."""
        return list(self._by_topic.get(topic, ()))

    def of_task(self, task: str) -> list[TopicPartition]:
        """Return the partitions that a task still has to bring to their targets."""
        return list(self._by_task.get(task, ()))

    def task_of(self, topic_partition: TopicPartition) -> str:
        """Return the task that reassigns a partition; empty where none does."""
        entry = self._entries.get(topic_partition)
        return entry.intent.task if entry else ""

    def has_task(self, task: str) -> bool:
        """Tell whether a task has partitions that are not at their targets yet."""
        return task in self._by_task

    def topics(self) -> list[str]:
        """Return the topics that have partitions being reassigned."""
        return list(self._by_topic)

    @property
    def in_flight(self) -> int:
        """How many partitions are in a step."""
        return len(self._running)

    def put(
        self, topic_partition: TopicPartition, intent: Intent, version: int, request: int
    ) -> None:
        """Take up an intent, or what has become of it."""
        known = self._entries.get(topic_partition)
        if known is not None and (known.version, known.intent) == (version, intent):
            return
        if known is not None:
            _take_out(self._by_task, known.intent.task, topic_partition)
        self._entries[topic_partition] = QueuedReassignment(
            topic_partition, intent, version, request
        )
        self._by_topic.setdefault(topic_partition.topic, {})[topic_partition] = None
        self._by_task.setdefault(intent.task, {})[topic_partition] = None
        self.mark_changed([topic_partition])

    def drop(self, topic_partition: TopicPartition) -> None:
        """Forget a reassignment: its intent is gone."""
        entry = self._entries.pop(topic_partition, None)
        if entry is None:
            return
        self._touched.pop(topic_partition, None)
        if topic_partition in self._running:  # its place is free
            del self._running[topic_partition]
            self._has_news = True
        _take_out(self._by_topic, topic_partition.topic, topic_partition)
        _take_out(self._by_task, entry.intent.task, topic_partition)

    def mark_changed(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Note that partitions have changed."""
        known = [
            topic_partition
            for topic_partition in topic_partitions
            if topic_partition in self._entries
        ]
        self._touched.update(dict.fromkeys(known))
        self._has_news = self._has_news or bool(known)

    def mark_all_changed(self) -> None:
        """Note that anything may have changed."""
        self._touched = dict.fromkeys(self._entries)
        self._has_news = True

    def has_changes(self, image: ClusterImage, limits: ReassignmentLimits) -> bool:
        """Tell whether something has changed since it was last asked what is due."""
        if not self._entries:
            return False
        return self._has_news or self._circumstances != _circumstances(image, limits)

    # -- deciding --------------------------------------------------------------

    def due(self, image: ClusterImage, limits: ReassignmentLimits) -> list[DueAction]:
        """Return what is to be written now, within the limits.

        Steps that run come first; the places that they leave free are given to
        steps that begin. The same is due again until its writing has changed the image.
        """
        self.refresh(image, limits)
        self._has_news = False
        in_flight = {
            topic_partition: self._entries[topic_partition].moves_leader
            for topic_partition in self._running
        }
        may_move = self._first_movers(limits.leader_movements)
        due = [
            DueAction(topic_partition, entry.state, entry.action)
            for topic_partition in in_flight
            if (entry := self._entries[topic_partition]).state is not None
            and not isinstance(entry.action, Wait)
            and (not isinstance(entry.action, Elect) or topic_partition in may_move)
        ]
        if limits.partition_movements is None or len(in_flight) < limits.partition_movements:
            begins = collect_reassignment_batch(self._candidates(), in_flight, limits)
            for topic_partition in begins:
                entry = self._entries[topic_partition]
                if entry.state is not None:
                    due.append(DueAction(topic_partition, entry.state, entry.action))
        return due

    def blocked_by_leader_limit(self, limits: ReassignmentLimits) -> set[TopicPartition]:
        """Return the running steps that wait for others to be done with moving leaders."""
        may_move = self._first_movers(limits.leader_movements)
        return {
            topic_partition
            for topic_partition in self._running
            if isinstance(self._entries[topic_partition].action, Elect)
            and topic_partition not in may_move
        }

    def refresh(self, image: ClusterImage, limits: ReassignmentLimits) -> None:
        """Bring the entries up to date that something has happened to."""
        circumstances = _circumstances(image, limits)
        if circumstances != self._circumstances:
            self._circumstances = circumstances
            self.mark_all_changed()
        touched, self._touched = self._touched, {}
        live, find_stale = image.electable, stale_finder(image)
        for topic_partition in touched:
            entry = self._entries[topic_partition]
            entry.update(collect_state(image, entry, live, find_stale, limits.replica_movements))
            if entry.is_running:
                self._running[topic_partition] = None
            else:
                self._running.pop(topic_partition, None)

    def _first_movers(self, limit: int | None) -> set[TopicPartition]:
        """Return the running steps that may move a leader: the first ones, up to the limit."""
        movers = [
            self._entries[topic_partition]
            for topic_partition in self._running
            if self._entries[topic_partition].moves_leader
        ]
        if limit is not None and len(movers) > limit:
            movers = sorted(movers, key=lambda entry: (entry.request, entry.topic_partition))[
                :limit
            ]
        return {entry.topic_partition for entry in movers}

    def _candidates(self) -> Iterator[StepCandidate]:
        for topic_partition, entry in self._entries.items():
            if isinstance(entry.action, Expand) and entry.state is not None:
                started = entry.state.replicas != entry.state.start
                yield StepCandidate(topic_partition, entry.request, started, entry.moves_leader)


def replicas_after_step(state: ReassignmentState) -> tuple[int, ...]:
    """Return the replicas that the step under way is meant to end with."""
    return order_replicas(without(state.replicas, state.removing), state.goal)


def _circumstances(image: ClusterImage, limits: ReassignmentLimits) -> object:
    """Return what every reassignment depends on."""
    return dict(image.registered_at), image.electable, image.draining, limits


def _take_out(
    index: dict[str, dict[TopicPartition, None]], key: str, topic_partition: TopicPartition
) -> None:
    topic_partitions = index[key]
    del topic_partitions[topic_partition]
    if not topic_partitions:
        del index[key]


def collect_state(
    image: ClusterImage,
    entry: QueuedReassignment,
    live: frozenset[int],
    find_stale: StaleFinder,
    replica_movements: int | None,
) -> ReassignmentState | None:
    """Return what the next action of a reassignment follows from, or None if there can be none."""
    topic_partition, intent = entry.topic_partition, entry.intent
    topic = image.topics.get(topic_partition.topic)
    partition = topic.active_partition(topic_partition.partition) if topic else None
    if topic is None or partition is None or topic.deleting or not topic.topic_id:
        return None
    if intent.topic_id not in ("", topic.topic_id):
        return (
            None  # it was meant for an earlier topic of this topic_partition, and will be dropped
        )
    roles = partition.state
    adding = topic.assignment.adding.get(topic_partition.partition, ())
    return ReassignmentState(
        replicas=partition.replicas,
        leader=NO_LEADER if roles is None else roles.leader,
        isr=() if roles is None else roles.isr,
        target=intent.target,
        start=intent.start or tuple(b for b in partition.replicas if b not in adding),
        live=live,
        adding=adding,
        removing=topic.assignment.removing.get(topic_partition.partition, ()),
        stale=find_stale(partition),
        draining=image.draining,
        algorithm=intent.algorithm,
        cancelled=intent.cancelled,
        min_insync_replicas=image.min_insync_replicas(topic),
        replica_movements=replica_movements,
    )
