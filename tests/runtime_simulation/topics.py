"""The topics of a simulated cluster as ZooKeeper has them: those that live, and those that did.

A topic that is deleted and created again is another one under the same name, with another id. It
is called an incarnation here. So is a partition that was removed and added again: it has the same
name, but begins with a later leader epoch.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.tasks import Intent, decode_intent
from leadline_common.znodes import PartitionState, TopicAssignment
from tests.runtime_simulation.plan import Retention
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper import ZooKeeper
from tests.runtime_simulation.zookeeper_tree import Change

MOVED = "reassignments of a topic have ended"
STATE = re.compile(rf"{znodes.TOPICS}/([^/]+)/partitions/(\d+)/state")


@dataclass(eq=False)
class Topics:
    """Reads topics from ZooKeeper's tree, past all sessions.

    `ever` has all ids, oldest first, and `problems` the topics that were deleted although nobody
    had asked for that (R11, R12).
    """

    world: World
    zookeeper: ZooKeeper
    ever: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list, init=False)
    _first_epochs: dict[tuple[str, int], list[int]] = field(default_factory=dict, init=False)
    _first_zxids: dict[tuple[str, int], list[int]] = field(default_factory=dict, init=False)
    _tombstones: set[str] = field(default_factory=set, init=False)
    _moving: set[str] = field(default_factory=set, init=False)
    _decoded: dict[bytes, TopicAssignment] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.zookeeper.on_commit.append(self._look)

    def _look(self, changes: list[Change]) -> bool:
        """Note new incarnations, and what happens to topics; a function of `on_commit`."""
        for change in changes:
            parent, _, name = change.path.rpartition("/")
            if parent == znodes.TOPICS and not change.deleted:
                self._note(name, self.assignment(name))
            elif parent == znodes.TOPICS and self.ever[name][-1] not in self._tombstones:
                self.problems.append(f"R12: {name} {self.ever[name][-1]} was deleted unasked")
            elif change.created and (found := STATE.fullmatch(change.path)):
                self._note_partition(TopicPartition(found[1], int(found[2])))
            node = self.zookeeper.tree.now(change.path)
            if parent == znodes.DELETE_TOPICS and node is not None:
                self._tombstones.add(node.data.decode())
        return False

    def _note(self, name: str, topic: TopicAssignment | None) -> None:
        if topic is None:
            return
        moving = bool(topic.adding or topic.removing)
        if topic.topic_id in self._moving and not moving:
            self.world.reached(MOVED)
        (self._moving.add if moving else self._moving.discard)(topic.topic_id)
        ids = self.ever.setdefault(name, [])
        if topic.topic_id not in ids:
            ids.append(topic.topic_id)
            self.world.note("topic %s is %s", name, topic.topic_id)

    def _note_partition(self, partition: TopicPartition) -> None:
        """Note with which leader epoch, and when, an incarnation of a partition begins."""
        topic_id, state = self.ever[partition.topic][-1], self.state(partition)
        if state is not None:
            place = topic_id, partition.partition
            self._first_epochs.setdefault(place, []).append(state.leader_epoch)
            self._first_zxids.setdefault(place, []).append(self.zookeeper.tree.zxid)

    def name_now(self, partition: TopicPartition) -> str:
        """Return the history's name of a partition as it is, empty if there is none."""
        topic_id = self.id_of(partition.topic)
        if topic_id is None or self.state(partition) is None:
            return ""
        count = len(self._first_epochs[topic_id, partition.partition])
        return name_of(partition.topic, topic_id, count - 1)

    def name_at(self, partition: TopicPartition, topic_id: str, leader_epoch: int) -> str:
        """Return the history's name of the incarnation whose leaders had an epoch."""
        firsts = self._first_epochs.get((topic_id, partition.partition), [0])
        return name_of(partition.topic, topic_id, bisect_right(firsts, leader_epoch) - 1)

    def name_when(self, partition: TopicPartition, topic_id: str, zxid: int) -> str:
        """Return the history's name of the incarnation that there was at a write of ZooKeeper."""
        firsts = self._first_zxids.get((topic_id, partition.partition), [0])
        return name_of(partition.topic, topic_id, bisect_right(firsts, zxid) - 1)

    def assignment(self, name: str) -> TopicAssignment | None:
        """Return a topic's node."""
        node = self.zookeeper.tree.now(znodes.topic_path(name))
        if node is None:
            return None
        if node.data not in self._decoded:
            self._decoded[node.data] = znodes.decode_topic(node.data)
        return self._decoded[node.data]

    def id_of(self, name: str) -> str | None:
        """Return the id of the topic of this name, None if there is none."""
        topic = self.assignment(name)
        return None if topic is None else topic.topic_id

    def state(self, partition: TopicPartition) -> PartitionState | None:
        """Return a partition's state."""
        node = self.zookeeper.tree.now(znodes.state_path(*partition))
        return None if node is None else znodes.decode_state(node.data)

    def configs(self, name: str) -> dict[str, str]:
        """Return a topic's own configs."""
        node = self.zookeeper.tree.now(znodes.topic_config_path(name))
        return {} if node is None else znodes.decode_configs(node.data)

    def retentions_ever(self, name: str) -> list[Retention]:
        """Return what the topics of a name have stated about their retention, by now."""
        history = self.zookeeper.tree.history(znodes.topic_config_path(name))
        found = [znodes.decode_configs(node.data) for _, node in history if node is not None]
        return [
            Retention(int(one["retention.bytes"]), int(one["retention.ms"]))
            for one in found
            if "retention.bytes" in one
        ]

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return a partition's assigned replicas; none if there is no such partition."""
        topic = self.assignment(partition.topic)
        return () if topic is None else topic.partitions.get(partition.partition, ())

    def is_going(self, topic_id: str, partition: int, leader_epoch: int) -> bool:
        """Tell whether a partition is being deleted, alone or with its topic, or was deleted.

        It may have been added again since its leader had this epoch.
        """
        name = next((name for name, ids in self.ever.items() if ids[-1] == topic_id), None)
        if name is None or self.state(TopicPartition(name, partition)) is None:
            return True
        if leader_epoch < self._first_epochs[topic_id, partition][-1]:
            return True
        removal = f"{znodes.PARTITIONS_REMOVE}/{name}/{partition}"
        return topic_id in self._tombstones or self.zookeeper.tree.now(removal) is not None

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions that topics have now."""
        return [
            TopicPartition(name, number)
            for name in sorted(self.ever)
            if (topic := self.assignment(name)) is not None
            for number in sorted(topic.partitions)
        ]

    def intents(self) -> dict[TopicPartition, Intent]:
        """Return the reassignments that go on, or wait."""
        tree, found = self.zookeeper.tree, {}
        for partition in self.partitions():
            node = tree.now(
                f"{znodes.PARTITIONS_REASSIGNED}/{partition.topic}/{partition.partition}"
            )
            if node is not None:
                found[partition] = decode_intent(node.data)
        return found

    def is_complete(self, partition: TopicPartition) -> bool:
        """Tell whether a partition has a leader, and all its replicas in the ISR."""
        state = self.state(partition)
        return (
            state is not None
            and state.leader >= 0
            and set(state.isr) == set(self.replicas(partition))
        )

    def states_ever(self, partition: TopicPartition) -> Iterator[list[PartitionState]]:
        """Yield the states that a partition went through, for each incarnation of its topic."""
        states: list[PartitionState] = []
        for _, node in self.zookeeper.tree.history(znodes.state_path(*partition)):
            if node is not None:
                states.append(znodes.decode_state(node.data))
            elif states:
                yield states
                states = []
        yield states


def name_of(topic: str, topic_id: str, times: int = 0) -> str:
    """Return the name under which the history keeps an incarnation of a topic.

    Its partition was added again so many `times`.
    """
    return f"{topic} {topic_id}" + (f", added again {times}" if times else "")
