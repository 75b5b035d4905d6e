"""The intents under `/admin/partitions_reassigned`: reads, watches and writes.

Operators may write intents directly, so watches trigger a read, and each reconciliation
reads everything. The versions of this controller's own writes are kept, so a step of
a reassignment reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.partition_intents import is_partition
from leadline_common.slices import slices
from leadline_common.tasks import Intent, decode_intent, intent_path, intents_path
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, MultiResults, Op, SetOp, Stat
from leadline_controller.runtime.engine.event_queue import EventQueue
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.reassignment.events import IntentsChanged

logger = structlog.get_logger(__name__)

READ_PAUSE_S = 0.2
"""The shortest time between two reads of intents: the controller's writes fire watches too."""


class _Known(NamedTuple):
    """The version of a known intent, and the transaction that last wrote it.

    Somebody may have replaced the node by another one of the same version.
    """

    version: int
    zxid: int


class FoundIntents(msgspec.Struct, frozen=True):
    """What a read found: new and changed intents with their versions, and deleted ones.

    `invalid` maps topic and name of the nodes that are no intents to the reasons.
    """

    changed: dict[TopicPartition, tuple[Intent, int]]
    vanished: list[TopicPartition]
    invalid: dict[tuple[str, str], str] = {}


@dataclass(eq=False)
class IntentNodes:
    """The versions of the known intents, and the watches on all of them."""

    store: ControllerStore
    queue: EventQueue
    _known: dict[TopicPartition, _Known] = field(default_factory=dict, init=False)
    _children: dict[str, set[str]] = field(default_factory=dict, init=False)
    _watched: set[str] = field(default_factory=set, init=False)
    _invalidated: set[TopicPartition] = field(default_factory=set, init=False)
    _roots: list[str] | None = field(default=None, init=False)

    def read_soon(self) -> None:
        """Have the intents read again."""
        self.queue.trigger_later(READ_PAUSE_S, IntentsChanged)

    # -- reading ---------------------------------------------------------------

    async def read(self, *, everything: bool) -> FoundIntents:
        """Read the intents whose watches fired, or with `everything` all of them."""
        if everything:
            self._watched.clear()
            self._roots = None
        if self._roots is None:
            self._roots = await self.store.list_children(
                znodes.PARTITIONS_REASSIGNED, self._root_changed
            )
        topics = self._roots or []
        for topic in topics:
            if topic not in self._watched:
                self._watched.add(topic)
                names = await self.store.list_children(
                    intents_path(topic), partial(self._topic_changed, topic)
                )
                self._children[topic] = set(names or ())
        for topic in self._children.keys() - set(topics):
            del self._children[topic]
        return await self._read_found(everything=everything)

    async def _read_found(self, *, everything: bool) -> FoundIntents:
        present, invalid = await self._present()
        vanished = [
            topic_partition for topic_partition in self._known if topic_partition not in present
        ]
        for topic_partition in vanished:
            del self._known[topic_partition]
        known = self._known.keys() - self._invalidated
        self._invalidated.clear()
        wanted = sorted(present if everything else present - known)
        nodes = await self.store.read_nodes(
            [intent_path(*topic_partition) for topic_partition in wanted]
        )
        changed = {}
        async for some in slices(zip(wanted, nodes, strict=True)):
            for topic_partition, node in some:
                if node is None or self._known.get(topic_partition) == (node.version, node.zxid):
                    continue
                self._known[topic_partition] = _Known(node.version, node.zxid)
                try:
                    changed[topic_partition] = (_decoded(node.data), node.version)
                except (msgspec.MsgspecError, ValueError) as problem:
                    key = topic_partition.topic, str(topic_partition.partition)
                    invalid[key] = f"it cannot be read: {problem}"
        return FoundIntents(changed, vanished, invalid)

    async def _present(self) -> tuple[set[TopicPartition], dict[tuple[str, str], str]]:
        """Return the partitions that have a node, and the nodes of other names, in turns."""
        present: set[TopicPartition] = set()
        invalid: dict[tuple[str, str], str] = {}
        rows = [(topic, name) for topic, names in self._children.items() for name in names]
        async for some in slices(rows):  # Only handlers of events write or read intents.
            for topic, name in some:
                if is_partition(name):
                    present.add(TopicPartition(topic, int(name)))
                else:
                    invalid[topic, name] = "its name is no partition"
        return present, invalid

    def _root_changed(self) -> None:
        self._roots = None
        self.read_soon()

    def _topic_changed(self, topic: str) -> None:
        self._watched.discard(topic)
        self.read_soon()

    # -- writing ---------------------------------------------------------------

    def write_ops(self, intents: Mapping[TopicPartition, Intent]) -> list[Op]:
        """Return the operations that create or replace intents."""
        ops: list[Op] = []
        parents = set(self._children)
        for topic_partition, intent in intents.items():
            if topic_partition.topic not in parents:
                parents.add(topic_partition.topic)
                ops.append(CreateOp(intents_path(topic_partition.topic)))
            path, data = intent_path(*topic_partition), znodes.encode_value(intent)
            known = self._known.get(topic_partition)
            ops.append(SetOp(path, data, known.version) if known else CreateOp(path, data))
        return ops

    def written(
        self, intents: Mapping[TopicPartition, Intent], results: MultiResults
    ) -> FoundIntents:
        """Note that the operations of `write_ops` were applied; return the intents as written."""
        stats = (result for result in results if isinstance(result, Stat))
        for topic_partition in intents:
            is_new = topic_partition not in self._known
            version = 0 if is_new else next(stats).version
            self._known[topic_partition] = _Known(version, results.zxid)
            self._children.setdefault(topic_partition.topic, set()).add(
                str(topic_partition.partition)
            )
        return FoundIntents({one: (intents[one], self._known[one].version) for one in intents}, [])

    def delete_ops(self, topic_partitions: Sequence[TopicPartition]) -> list[Op]:
        """Return the operations that delete intents of one topic, and the parent if it is empty.

        Partitions without an intent are ignored. ZooKeeper refuses the operations if somebody
        has changed an intent, or added one.
        """
        present = [
            topic_partition
            for topic_partition in topic_partitions
            if topic_partition in self._known
        ]
        ops: list[Op] = [
            DeleteOp(intent_path(*topic_partition), self._known[topic_partition].version)
            for topic_partition in present
        ]
        topic = topic_partitions[0].topic if topic_partitions else ""
        if ops and self._children.get(topic) == {
            str(topic_partition.partition) for topic_partition in present
        }:
            ops.append(DeleteOp(intents_path(topic), ANY_VERSION))
        return ops

    def discard_ops(self, topic: str, name: str) -> list[Op]:
        """Return the operations that delete one node, and the parent if it is empty then."""
        known = self._known.get(TopicPartition(topic, int(name))) if is_partition(name) else None
        version = ANY_VERSION if known is None else known.version
        ops: list[Op] = [DeleteOp(f"{intents_path(topic)}/{name}", version)]
        if self._children.get(topic) == {name}:
            ops.append(DeleteOp(intents_path(topic), ANY_VERSION))
        return ops

    def forget(self, topic: str, name: str) -> None:
        """Have a node count as new if a later read finds it."""
        if is_partition(name):
            self._known.pop(TopicPartition(topic, int(name)), None)
        self._forget_child(topic, name)

    def deleted(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Note that the operations of `delete_ops` were applied."""
        for topic_partition in topic_partitions:
            self._known.pop(topic_partition, None)
            self._forget_child(topic_partition.topic, str(topic_partition.partition))

    def _forget_child(self, topic: str, name: str) -> None:
        children = self._children.get(topic)
        if children is not None:
            children.discard(name)
            if not children:
                del self._children[topic]
                self._watched.discard(topic)

    def invalidate(self, topic: str) -> None:
        """Have a topic's intents read again: a write was refused."""
        self._watched.discard(topic)
        self._invalidated.update(
            topic_partition for topic_partition in self._known if topic_partition.topic == topic
        )
        self.read_soon()


def _decoded(data: bytes) -> Intent:
    """Decode an intent that an operator may have written.

    Raises:
        msgspec.MsgspecError, ValueError: it is none.

    """
    intent = decode_intent(data)
    if not intent.target or any(map(_repeats, (intent.target, intent.start))):
        raise ValueError("it names no broker, or one twice")
    return intent


def _repeats(replicas: tuple[int, ...]) -> bool:
    return len(set(replicas)) < len(replicas)
