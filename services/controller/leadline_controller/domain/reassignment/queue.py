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
from leadline_controller.domain.failover import FindStale, registered_since
from leadline_controller.domain.reassignment.batches import (
    Candidate,
    ReassignmentLimits,
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


class Due(msgspec.Struct, frozen=True):
    """What to write for a partition, and the facts that it follows from."""

    name: TopicPartition
    facts: ReassignmentState
    action: Action


class QueuedReassignment:
    """One reassignment; `version` is that of its intent, `request` orders the requests.

    `facts` are None while the partition cannot be acted on: its topic is unknown,
    being deleted, or not the one that was meant. `moves_leader` speaks of the running
    step, or of the next one.
    """

    __slots__ = ("action", "facts", "intent", "moves_leader", "name", "request", "version")

    def __init__(self, name: TopicPartition, intent: Intent, version: int, request: int) -> None:
        self.name = name
        self.intent = intent
        self.version = version
        self.request = request
        self.facts: ReassignmentState | None = None
        self.action: Action = Wait(WaitReason.PARTITION_OFFLINE)
        self.moves_leader = False

    @property
    def is_running(self) -> bool:
        """Whether a step is under way."""
        return self.facts is not None and self.facts.is_running

    @property
    def phase(self) -> ReassignmentPhase:
        """How far the reassignment is."""
        return ReassignmentPhase.WAITING if self.facts is None else phase_of(self.facts)

    def look(self, facts: ReassignmentState | None) -> None:
        """Take in what is so now, and conclude what is to be done."""
        was_mover = self.is_running and self.moves_leader
        self.facts = facts
        if facts is None:
            self.action = Wait(WaitReason.PARTITION_OFFLINE)
            self.moves_leader = False
            return
        self.action = next_action(facts)
        # A step that has moved the leader counts as one that does until it ends.
        self.moves_leader = moves_leader(facts) or (was_mover and facts.is_running)


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

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def get(self, name: TopicPartition) -> QueuedReassignment | None:
        """Return a partition's reassignment, if there is one."""
        return self._entries.get(name)

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that are being reassigned."""
        return list(self._by_topic.get(topic, ()))

    def of_task(self, task: str) -> list[TopicPartition]:
        """Return the partitions that a task still has to bring to their targets."""
        return list(self._by_task.get(task, ()))

    def task_of(self, name: TopicPartition) -> str:
        """Return the task that reassigns a partition; empty where none does."""
        entry = self._entries.get(name)
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

    def put(self, name: TopicPartition, intent: Intent, version: int, request: int) -> None:
        """Take up an intent, or what has become of it."""
        known = self._entries.get(name)
        if known is not None and (known.version, known.intent) == (version, intent):
            return
        if known is not None:
            _take_out(self._by_task, known.intent.task, name)
        self._entries[name] = QueuedReassignment(name, intent, version, request)
        self._by_topic.setdefault(name.topic, {})[name] = None
        self._by_task.setdefault(intent.task, {})[name] = None
        self.touch([name])

    def drop(self, name: TopicPartition) -> None:
        """Forget a reassignment: its intent is gone."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        self._touched.pop(name, None)
        if name in self._running:  # its place is free
            del self._running[name]
            self._has_news = True
        _take_out(self._by_topic, name.topic, name)
        _take_out(self._by_task, entry.intent.task, name)

    def touch(self, names: Iterable[TopicPartition]) -> None:
        """Note that partitions have changed."""
        known = [name for name in names if name in self._entries]
        self._touched.update(dict.fromkeys(known))
        self._has_news = self._has_news or bool(known)

    def touch_all(self) -> None:
        """Note that anything may have changed."""
        self._touched = dict.fromkeys(self._entries)
        self._has_news = True

    def is_behind(self, image: ClusterImage, limits: ReassignmentLimits) -> bool:
        """Tell whether something has changed since it was last asked what is due."""
        if not self._entries:
            return False
        return self._has_news or self._circumstances != _circumstances(image, limits)

    # -- deciding --------------------------------------------------------------

    def due(self, image: ClusterImage, limits: ReassignmentLimits) -> list[Due]:
        """Return what is to be written now, within the limits.

        Steps that run come first; the places that they leave free are given to
        steps that begin. The same is due again until its writing has changed the image.
        """
        self.refresh(image, limits)
        self._has_news = False
        in_flight = {name: self._entries[name].moves_leader for name in self._running}
        may_move = self._first_movers(limits.leader_movements)
        due = [
            Due(name, entry.facts, entry.action)
            for name in in_flight
            if (entry := self._entries[name]).facts is not None
            and not isinstance(entry.action, Wait)
            and (not isinstance(entry.action, Elect) or name in may_move)
        ]
        if limits.partition_movements is None or len(in_flight) < limits.partition_movements:
            begins = collect_reassignment_batch(self._candidates(), in_flight, limits)
            for name in begins:
                entry = self._entries[name]
                if entry.facts is not None:
                    due.append(Due(name, entry.facts, entry.action))
        return due

    def held_up(self, limits: ReassignmentLimits) -> set[TopicPartition]:
        """Return the running steps that wait for others to be done with moving leaders."""
        may_move = self._first_movers(limits.leader_movements)
        return {
            name
            for name in self._running
            if isinstance(self._entries[name].action, Elect) and name not in may_move
        }

    def refresh(self, image: ClusterImage, limits: ReassignmentLimits) -> None:
        """Bring the entries up to date that something has happened to."""
        circumstances = _circumstances(image, limits)
        if circumstances != self._circumstances:
            self._circumstances = circumstances
            self.touch_all()
        touched, self._touched = self._touched, {}
        live, find_stale = image.electable, registered_since(image)
        for name in touched:
            entry = self._entries[name]
            entry.look(collect_state(image, entry, live, find_stale, limits.replica_movements))
            if entry.is_running:
                self._running[name] = None
            else:
                self._running.pop(name, None)

    def _first_movers(self, limit: int | None) -> set[TopicPartition]:
        """Return the running steps that may move a leader: the first ones, up to the limit."""
        movers = [self._entries[name] for name in self._running if self._entries[name].moves_leader]
        if limit is not None and len(movers) > limit:
            movers = sorted(movers, key=lambda entry: (entry.request, entry.name))[:limit]
        return {entry.name for entry in movers}

    def _candidates(self) -> Iterator[Candidate]:
        for name, entry in self._entries.items():
            if isinstance(entry.action, Expand) and entry.facts is not None:
                started = entry.facts.replicas != entry.facts.start
                yield Candidate(name, entry.request, started, entry.moves_leader)


def result_of_step(facts: ReassignmentState) -> tuple[int, ...]:
    """Return the replicas that the step under way is meant to end with."""
    return order_replicas(without(facts.replicas, facts.removing), facts.goal)


def _circumstances(image: ClusterImage, limits: ReassignmentLimits) -> object:
    """Return what every reassignment depends on."""
    return dict(image.registered_at), image.electable, image.draining, limits


def _take_out(index: dict[str, dict[TopicPartition, None]], key: str, name: TopicPartition) -> None:
    names = index[key]
    del names[name]
    if not names:
        del index[key]


def collect_state(
    image: ClusterImage,
    entry: QueuedReassignment,
    live: frozenset[int],
    find_stale: FindStale,
    replica_movements: int | None,
) -> ReassignmentState | None:
    """Return what the next action of a reassignment follows from, or None if there can be none."""
    name, intent = entry.name, entry.intent
    topic = image.topics.get(name.topic)
    partition = topic.stands(name.partition) if topic else None
    if topic is None or partition is None or topic.deleting or not topic.topic_id:
        return None
    if intent.topic_id not in ("", topic.topic_id):
        return None  # it was meant for an earlier topic of this name, and will be dropped
    state = partition.state
    adding = topic.assignment.adding.get(name.partition, ())
    return ReassignmentState(
        replicas=partition.replicas,
        leader=NO_LEADER if state is None else state.leader,
        isr=() if state is None else state.isr,
        target=intent.target,
        start=intent.start or tuple(b for b in partition.replicas if b not in adding),
        live=live,
        adding=adding,
        removing=topic.assignment.removing.get(name.partition, ()),
        stale=find_stale(partition),
        draining=image.draining,
        algorithm=intent.algorithm,
        cancelled=intent.cancelled,
        min_insync_replicas=image.min_insync_replicas(topic),
        replica_movements=replica_movements,
    )
