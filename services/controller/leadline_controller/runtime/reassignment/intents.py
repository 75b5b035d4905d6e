"""What stands under `/admin/partitions_reassigned`: read, watched, and written.

Operators may write intents by hand, so the watches are hints to look again, and
each reconciliation reads everything. What this controller writes itself is noted
down: a step of a reassignment reads nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.tasks import (
    Intent,
    decode_intent,
    encode_intent,
    intent_path,
    intents_path,
)
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, OpResult, SetOp, Stat
from leadline_controller.domain.cluster import NO_NODE
from leadline_controller.runtime.ports import Store

_log = logging.getLogger(__name__)


class FoundIntents(msgspec.Struct, frozen=True):
    """The outcome of a look: intents that are new or changed, with versions; and those gone."""

    changed: dict[TopicPartition, tuple[Intent, int]]
    vanished: list[TopicPartition]


class IntentNodes:
    """The intents as they are known, by node version; `wake` is told when to look again."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake
        self._versions: dict[TopicPartition, int] = {}
        self._children: dict[str, set[str]] = {}
        self._watched: set[str] = set()
        self._doubted: set[TopicPartition] = set()
        self._roots: list[str] | None = None

    # -- reading ---------------------------------------------------------------

    async def look(self, *, everything: bool) -> FoundIntents:
        """Read what the watches fired for; or with `everything`, each node."""
        if everything:
            self._watched.clear()
            self._roots = None
        if self._roots is None:
            self._roots = await self._store.list_children(
                znodes.PARTITIONS_REASSIGNED, self._root_changed
            )
        topics = self._roots or []
        for topic in topics:
            if topic not in self._watched:
                self._watched.add(topic)
                names = await self._store.list_children(
                    intents_path(topic), partial(self._topic_changed, topic)
                )
                self._children[topic] = set(names or ())
        for topic in self._children.keys() - set(topics):
            del self._children[topic]
        return await self._read(everything=everything)

    async def _read(self, *, everything: bool) -> FoundIntents:
        there = {
            TopicPartition(topic, int(name))
            for topic, names in self._children.items()
            for name in names
            if name.isdecimal()
        }
        vanished = [name for name in self._versions if name not in there]
        for name in vanished:
            del self._versions[name]
        known = self._versions.keys() - self._doubted
        self._doubted.clear()
        wanted = sorted(there if everything else there - known)
        nodes = await self._store.read_nodes([intent_path(*name) for name in wanted])
        changed = {}
        for name, node in zip(wanted, nodes, strict=True):
            if node is None or self._versions.get(name) == node.version:
                continue
            self._versions[name] = node.version
            intent = _readable(name, node.data)
            if intent is not None:
                changed[name] = (intent, node.version)
        return FoundIntents(changed, vanished)

    def _root_changed(self) -> None:
        self._roots = None
        self._wake()

    def _topic_changed(self, topic: str) -> None:
        self._watched.discard(topic)
        self._wake()

    # -- writing ---------------------------------------------------------------

    def write_ops(self, intents: Mapping[TopicPartition, Intent]) -> list[Op]:
        """Return the operations that create or replace intents."""
        ops: list[Op] = []
        parents = set(self._children)
        for name, intent in intents.items():
            if name.topic not in parents:
                parents.add(name.topic)
                ops.append(CreateOp(intents_path(name.topic)))
            path, data = intent_path(*name), encode_intent(intent)
            version = self._versions.get(name, NO_NODE)
            ops.append(CreateOp(path, data) if version == NO_NODE else SetOp(path, data, version))
        return ops

    def written(
        self, intents: Mapping[TopicPartition, Intent], results: Sequence[OpResult]
    ) -> dict[TopicPartition, int]:
        """Note that `write_ops` were carried out, and return the version of each intent."""
        stats = (result for result in results if isinstance(result, Stat))
        for name in intents:
            is_new = name not in self._versions
            self._versions[name] = 0 if is_new else next(stats).version
            self._children.setdefault(name.topic, set()).add(str(name.partition))
        return {name: self._versions[name] for name in intents}

    def delete_ops(self, names: Sequence[TopicPartition]) -> list[Op]:
        """Return the operations that remove intents of one topic, and their parent if it empties.

        Names without an intent are passed over. They are refused where somebody has
        changed an intent, or added one.
        """
        there = [name for name in names if name in self._versions]
        ops: list[Op] = [DeleteOp(intent_path(*name), self._versions[name]) for name in there]
        topic = names[0].topic if names else ""
        if ops and self._children.get(topic) == {str(name.partition) for name in there}:
            ops.append(DeleteOp(intents_path(topic), ANY_VERSION))
        return ops

    def deleted(self, names: Iterable[TopicPartition]) -> None:
        """Note that `delete_ops` were carried out."""
        for name in names:
            self._versions.pop(name, None)
            children = self._children.get(name.topic)
            if children is not None:
                children.discard(str(name.partition))
                if not children:
                    del self._children[name.topic]
                    self._watched.discard(name.topic)

    def distrust(self, topic: str) -> None:
        """Have a topic's intents looked at anew: a write was refused."""
        self._watched.discard(topic)
        self._doubted.update(name for name in self._versions if name.topic == topic)
        self._wake()


def _readable(name: TopicPartition, data: bytes) -> Intent | None:
    """Decode an intent that a person may have written; None, with a log line, if it is none."""
    try:
        intent = decode_intent(data)
    except (msgspec.MsgspecError, ValueError) as problem:
        _log.error("the intent for %s-%d cannot be read: %s", *name, problem)
        return None
    if not intent.target or len(set(intent.target)) < len(intent.target):
        _log.error("the intent for %s-%d names no broker, or one twice", *name)
        return None
    return intent
