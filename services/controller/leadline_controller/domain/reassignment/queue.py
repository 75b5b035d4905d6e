"""The queue of reassignments, and the actions that are due.

Replication V3, section F, calls it the reassigned_partition_map. The queue has one entry
for each intent. It follows from the intents and the image alone, so that a new
controller builds the same queue. The state of a partition is cached until it changes:
with thousands of reassignments of which few are in flight, only those in flight cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Final

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.reassignments import ReassignmentPhase, WaitReason
from leadline_common.tasks import Intent
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.failover import StaleFinder, stale_finder
from leadline_controller.domain.memberships import misplaced_members
from leadline_controller.domain.reassignment.batches import (
    ReassignmentLimits,
    StepCandidate,
    WaitingSteps,
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

REFRESHED_AT_ONCE: Final = 200
"""How many reassignments are examined in one turn of the event loop: each takes 75 µs."""


class DueAction(msgspec.Struct, frozen=True):
    """An action to write for a partition, and the state that it was decided from."""

    topic_partition: TopicPartition
    state: ReassignmentState
    action: Action


class QueuedReassignment(msgspec.Struct, eq=False):
    """One reassignment: its intent, and the next action.

    `version` is the version of the intent's node, `request` the position of the request.
    `state` is None while no action is possible: the topic is unknown, being deleted, or
    another one than the intent names. `moves_leader` refers to the step in progress or,
    without one, to the next step.
    """

    topic_partition: TopicPartition
    intent: Intent
    version: int
    request: int
    state: ReassignmentState | None = None
    action: Action = Wait(WaitReason.PARTITION_OFFLINE)
    moves_leader: bool = False

    @property
    def is_running(self) -> bool:
        """Whether a step is in progress."""
        return self.state is not None and self.state.is_running

    @property
    def takes_place(self) -> bool:
        """Whether its step counts against the limits.

        A step that waits for nothing but brokers that are down copies nothing, and may wait for
        ever. It counts again when one of them is back; until steps have ended, no other begins.
        """
        if self.state is None or not self.state.is_running:
            return False
        awaited = self.action.waiting_for if isinstance(self.action, Wait) else ()
        return not awaited or any(broker in self.state.live for broker in awaited)

    @property
    def phase(self) -> ReassignmentPhase:
        """The phase of the reassignment."""
        return ReassignmentPhase.WAITING if self.state is None else phase_of(self.state)

    def update(self, state: ReassignmentState | None) -> None:
        """Set the current state, and decide the next action."""
        was_mover = self.is_running and self.moves_leader
        self.state = state
        if state is None:
            self.action = Wait(WaitReason.PARTITION_OFFLINE)
            self.moves_leader = False
            return
        self.action = next_action(state)
        # A step that has already moved the leader counts as a leader movement until it ends.
        self.moves_leader = moves_leader(state) or (was_mover and state.is_running)


class ReassignmentQueue:
    """All reassignments, by partition."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, QueuedReassignment] = {}
        self._by_topic: dict[str, dict[TopicPartition, None]] = {}
        self._by_task: dict[str, dict[TopicPartition, None]] = {}
        self._changed: dict[TopicPartition, None] = {}
        # What `due` needs, kept up to date by `refresh_some`: it looks at no entry that waits.
        self._running: dict[TopicPartition, None] = {}
        self._ready: dict[TopicPartition, None] = {}
        self._in_flight: dict[TopicPartition, bool] = {}
        self._waiting = WaitingSteps()
        self._dependencies: object = None
        self._has_news = False
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever reassignments are added, marked as changed, or removed."""
        self._listeners.append(listener)

    def _publish(self) -> None:
        for listener in self._listeners:
            listener()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[QueuedReassignment]:
        return iter(self._entries.values())

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._entries

    def get(self, topic_partition: TopicPartition) -> QueuedReassignment | None:
        """Return the reassignment of a partition, or None."""
        return self._entries.get(topic_partition)

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that are being reassigned."""
        return list(self._by_topic.get(topic, ()))

    def of_task(self, task: str) -> list[TopicPartition]:
        """Return the partitions of a task that have not reached their targets."""
        return list(self._by_task.get(task, ()))

    def task_of(self, topic_partition: TopicPartition) -> str:
        """Return the task that reassigns a partition, or an empty string."""
        entry = self._entries.get(topic_partition)
        return entry.intent.task if entry else ""

    def has_task(self, task: str) -> bool:
        """Tell whether a task has partitions that have not reached their targets."""
        return task in self._by_task

    def topics(self) -> list[str]:
        """Return the topics that have partitions being reassigned."""
        return list(self._by_topic)

    @property
    def in_flight(self) -> int:
        """The number of partitions with a step in progress."""
        return len(self._running)

    def put(
        self, topic_partition: TopicPartition, intent: Intent, version: int, request: int
    ) -> None:
        """Add an intent, or replace it by a newer version."""
        known = self._entries.get(topic_partition)
        if known is not None and (known.version, known.intent) == (version, intent):
            return
        if known is not None:
            _remove_from(self._by_task, known.intent.task, topic_partition)
        entry = QueuedReassignment(topic_partition, intent, version, request)
        self._entries[topic_partition] = entry
        self._by_topic.setdefault(topic_partition.topic, {})[topic_partition] = None
        self._by_task.setdefault(intent.task, {})[topic_partition] = None
        self.mark_changed([topic_partition])

    def drop(self, topic_partition: TopicPartition) -> None:
        """Remove a reassignment whose intent is gone."""
        entry = self._entries.pop(topic_partition, None)
        if entry is None:
            return
        self._changed.pop(topic_partition, None)
        self._ready.pop(topic_partition, None)
        self._in_flight.pop(topic_partition, None)
        self._waiting.drop(topic_partition)
        if topic_partition in self._running:  # another partition may begin a step
            del self._running[topic_partition]
            self._has_news = True
        _remove_from(self._by_topic, topic_partition.topic, topic_partition)
        _remove_from(self._by_task, entry.intent.task, topic_partition)
        self._publish()

    def mark_changed(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Mark partitions whose state has changed."""
        known = [t for t in topic_partitions if t in self._entries]
        self._changed.update(dict.fromkeys(known))
        if known:
            self._has_news = True
            self._publish()

    def mark_all_changed(self) -> None:
        """Mark all partitions as changed."""
        self._changed = dict.fromkeys(self._entries)
        self._has_news = True
        self._publish()

    def has_changes(self, image: ClusterImage, limits: ReassignmentLimits) -> bool:
        """Tell whether anything has changed since the last call of `due`."""
        if not self._entries:
            return False
        return self._has_news or self._dependencies != _shared_dependencies(image, limits)

    # -- deciding --------------------------------------------------------------

    def due(self, image: ClusterImage, limits: ReassignmentLimits) -> list[DueAction]:
        """Return the actions to write now, within the limits.

        Steps in progress come first, then the steps that may begin. An action stays due
        until its write has changed the image.
        """
        self.refresh(image, limits)
        self._has_news = False
        held_back = self.blocked_by_leader_limit(limits)
        due = self._due_actions(one for one in self._ready if one not in held_back)
        begin = collect_reassignment_batch(self._waiting, self._in_flight, limits)
        return due + self._due_actions(begin)

    def _due_actions(self, topic_partitions: Iterable[TopicPartition]) -> list[DueAction]:
        entries = map(self._entries.__getitem__, topic_partitions)
        return [
            DueAction(entry.topic_partition, entry.state, entry.action)
            for entry in entries
            if entry.state is not None
        ]

    def blocked_by_leader_limit(self, limits: ReassignmentLimits) -> set[TopicPartition]:
        """Return the partitions whose step in progress waits for the limit on leader movements."""
        if limits.leader_movements is None:
            return set()
        may_move = self._first_movers(limits.leader_movements)
        return {
            one
            for one in self._ready
            if isinstance(self._entries[one].action, Elect) and one not in may_move
        }

    def refresh(self, image: ClusterImage, limits: ReassignmentLimits) -> None:
        """Update the entries that have changed since the last refresh."""
        while self.refresh_some(image, limits):
            pass

    def refresh_some(self, image: ClusterImage, limits: ReassignmentLimits) -> bool:
        """Update some of the entries that have changed; return whether any are left."""
        dependencies = _shared_dependencies(image, limits)
        if dependencies != self._dependencies:
            self._dependencies = dependencies
            self.mark_all_changed()
        live, find_stale = image.electable, stale_finder(image)
        for topic_partition in list(islice(self._changed, REFRESHED_AT_ONCE)):
            del self._changed[topic_partition]
            entry = self._entries[topic_partition]
            entry.update(collect_state(image, entry, live, find_stale, limits.replica_movements))
            self._index(entry)
        return bool(self._changed)

    def _index(self, entry: QueuedReassignment) -> None:
        """Note what an updated entry does within the window."""
        topic_partition, is_running = entry.topic_partition, entry.is_running
        _keep(self._running, topic_partition, present=is_running)
        is_ready = is_running and not isinstance(entry.action, Wait)
        _keep(self._ready, topic_partition, present=is_ready)
        if entry.takes_place:
            self._in_flight[topic_partition] = entry.moves_leader
        else:
            self._in_flight.pop(topic_partition, None)
        if entry.state is not None and isinstance(entry.action, Expand):
            started = entry.state.replicas != entry.state.start
            self._waiting.put(
                StepCandidate(topic_partition, entry.request, started, entry.moves_leader)
            )
        else:
            self._waiting.drop(topic_partition)

    def _first_movers(self, limit: int) -> set[TopicPartition]:
        """Return the partitions whose step in progress may move the leader, up to the limit."""
        movers = [one for one, moves in self._in_flight.items() if moves]
        if len(movers) <= limit:
            return set(movers)
        return set(nsmallest(limit, movers, key=lambda one: (self._entries[one].request, one)))


def replicas_after_step(state: ReassignmentState) -> tuple[int, ...]:
    """Return the replicas at the end of the step in progress."""
    return order_replicas(without(state.replicas, state.removing), state.goal)


def _shared_dependencies(image: ClusterImage, limits: ReassignmentLimits) -> object:
    """Return the part of the state that all reassignments depend on."""
    return dict(image.registered_at), image.electable, image.draining, limits


def _keep(
    index: dict[TopicPartition, None], topic_partition: TopicPartition, *, present: bool
) -> None:
    if present:
        index[topic_partition] = None
    else:
        index.pop(topic_partition, None)


def _remove_from(
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
    """Return the state of a reassignment, or None if no action is possible."""
    topic_partition, intent = entry.topic_partition, entry.intent
    topic = image.topics.get(topic_partition.topic)
    partition = topic.active_partition(topic_partition.partition) if topic else None
    if topic is None or partition is None or not topic.is_visible:
        return None
    if intent.topic_id not in ("", topic.topic_id):
        return None  # the intent is for an earlier topic of this name and will be dropped
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
        stale=find_stale(partition)
        | misplaced_members(image.brokers, topic, topic_partition.partition, roles),
        draining=image.draining,
        algorithm=intent.algorithm,
        cancelled=intent.cancelled,
        min_insync_replicas=image.min_insync_replicas(topic),
        replica_movements=replica_movements,
        eligible=() if roles is None else roles.eligible,
    )
