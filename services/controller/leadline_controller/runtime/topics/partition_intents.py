"""Orders for single partitions that stand in ZooKeeper: read, checked, given, taken away.

People may write them by hand, and may write anything: an order that cannot be carried
out is taken away, and the audit says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.partition_intents import (
    AddIntent,
    RemoveIntent,
    intent_path,
    intents_path,
)
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.cluster import TopicImage
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.ports import Wake

_log = logging.getLogger(__name__)
_Intent = TypeVar("_Intent", AddIntent, RemoveIntent)


class PartitionOrders(Generic[_Intent]):
    """The orders of one kind, all below `root`; `decode` reads one."""

    def __init__(self, desk: EventContext, root: str, decode: Callable[[bytes], _Intent]) -> None:
        self._desk = desk
        self._store = desk.office.store
        self._root = root
        self._decode: Callable[[bytes], _Intent] = decode

    async def read(self, wake: Wake) -> list[tuple[str, dict[int, bytes]]]:
        """Return the orders by topic; `wake` is told of new ones."""
        return sorted((await self._store.intents(self._root, wake)).items())

    def path(self, topic: str, number: int) -> str:
        """Return the node of an order."""
        return intent_path(self._root, topic, number)

    def decoded(
        self, topic: TopicImage, orders: Mapping[int, bytes]
    ) -> tuple[dict[int, _Intent], dict[int, str]]:
        """Return the orders for this very topic, and of the others why they are none."""
        wanted: dict[int, _Intent] = {}
        reasons: dict[int, str] = {}
        for number, data in orders.items():
            try:
                intent = self._decode(data)
            except msgspec.MsgspecError as problem:
                reasons[number] = f"it cannot be read: {problem}"
                continue
            if intent.topic_id in ("", topic.topic_id):
                wanted[number] = intent
            else:
                reasons[number] = "it was meant for another topic of the same name"
        return wanted, reasons

    async def refuse(self, topic: str, reasons: Mapping[int, str]) -> None:
        """Take away orders that cannot be carried out, and say why in the audit."""
        for number, reason in reasons.items():
            path = self.path(topic, number)
            _log.error("%s is refused: %s", path, reason)
            entry = self._refusal({"topic": topic, "partition": number}, reason)
            await self._desk.writer.commit([DeleteOp(path, ANY_VERSION)], entry)

    async def refuse_all(self, topic: str, orders: Iterable[int]) -> None:
        """Take away the orders for a topic that does not exist, and their parent."""
        paths = [*(self.path(topic, number) for number in orders), intents_path(self._root, topic)]
        entry = self._refusal({"topic": topic}, f"there is no topic {topic!r}")
        await self._desk.writer.commit([DeleteOp(path, ANY_VERSION) for path in paths], entry)

    def _refusal(self, resource: Mapping[str, str | int], reason: str) -> AuditEntry:
        entry = self._desk.entry("partition_order_refused", resource, reason=reason)
        return msgspec.structs.replace(entry, outcome="refused")

    async def creations(self, topic: str, numbers: Sequence[int], value: bytes) -> list[Op]:
        """Return what writes orders that do not stand yet, in the order of `numbers`."""
        parent = intents_path(self._root, topic)
        paths = [parent, *(self.path(topic, number) for number in numbers)]
        found = await self._store.read_nodes(paths)
        missing = [path for path, node in zip(paths, found, strict=True) if node is None]
        return [CreateOp(path, b"" if path == parent else value) for path in missing]

    async def deletions(self, names: Iterable[TopicPartition]) -> list[Op]:
        """Return what takes away the orders for these partitions, as far as they stand."""
        paths = [self.path(*name) for name in names]
        found = await self._store.read_nodes(paths)
        return [
            DeleteOp(path, ANY_VERSION)
            for path, node in zip(paths, found, strict=True)
            if node is not None
        ]
