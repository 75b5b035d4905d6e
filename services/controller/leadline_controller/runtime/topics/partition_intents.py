"""Partition intents: znodes that ask for partitions to be added or removed, and their events.

Operators may write intents directly, and may write anything: an intent that cannot be
executed is deleted, and the audit says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from leadline_client.wire import TopicPartition
from leadline_common.partition_intents import (
    AddIntent,
    RemoveIntent,
    intent_path,
    intents_path,
)
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op
from leadline_controller.domain.cluster import TopicImage
from leadline_controller.runtime.engine.events import ControllerEvent, DryRunRequest, Trigger
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore, Wake

logger = structlog.get_logger(__name__)
REFUSED = "partition_order_refused"
_Intent = TypeVar("_Intent", AddIntent, RemoveIntent)


class PartitionIntentsChanged(Trigger):
    """A watch on partition intents fired."""


@dataclass(frozen=True, slots=True)
class PartitionsStopped(ControllerEvent):
    """Every live broker has stopped and deleted the leaving partitions of a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class AddPartitions(DryRunRequest[Mapping[int, tuple[int, ...]]]):
    """Raise the number of a topic's partitions to `total`; the answer is the new replicas.

    With `replica_assignment` None the controller places them.
    """

    topic: str
    total: int
    replica_assignment: Mapping[int, tuple[int, ...]] | None

    @property
    def resource(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.topic}


@dataclass(frozen=True, slots=True)
class RemovePartitions(DryRunRequest[tuple[int, ...]]):
    """Remove partitions; answered with them once the intents are durable."""

    topic: str
    partitions: tuple[int, ...]

    @property
    def resource(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.topic}


@dataclass(eq=False)
class PartitionIntentStore(Generic[_Intent]):
    """The intents of one kind, all below `root`; `decode_one` decodes one."""

    root: str
    decode_one: Callable[[bytes], _Intent]
    store: ControllerStore
    writer: StateWriter
    audit: AuditLog

    async def read(self, wake: Wake) -> list[tuple[str, dict[int, bytes]]]:
        """Return the intents by topic, and call `wake` when there are new ones."""
        return sorted((await self.store.intents(self.root, wake)).items())

    def path(self, topic: str, number: int) -> str:
        """Return the znode of an intent."""
        return intent_path(self.root, topic, number)

    def decode(
        self, topic: TopicImage, intents: Mapping[int, bytes]
    ) -> tuple[dict[int, _Intent], dict[int, str]]:
        """Return the intents that are valid for this topic, and the reasons against the others."""
        valid: dict[int, _Intent] = {}
        reasons: dict[int, str] = {}
        for number, data in intents.items():
            try:
                intent = self.decode_one(data)
            except msgspec.MsgspecError as problem:
                reasons[number] = f"it cannot be read: {problem}"
                continue
            if intent.topic_id in ("", topic.topic_id):
                valid[number] = intent
            else:
                reasons[number] = "it was meant for another topic of the same name"
        return valid, reasons

    async def refuse(self, topic: str, reasons: Mapping[int, str]) -> None:
        """Delete intents that cannot be executed, and record the reasons in the audit."""
        for number, reason in reasons.items():
            path = self.path(topic, number)
            logger.error("intent refused", path=path, reason=reason)
            resource = {"topic": topic, "partition": number}
            entry = self.audit.entry(REFUSED, resource, outcome="refused", reason=reason)
            await self.writer.commit([DeleteOp(path, ANY_VERSION)], entry)

    async def refuse_all(self, topic: str, numbers: Iterable[int]) -> None:
        """Delete the intents for a topic that does not exist, and their parent."""
        parent = intents_path(self.root, topic)
        paths = [*(self.path(topic, number) for number in numbers), parent]
        reason = f"there is no topic {topic!r}"
        entry = self.audit.entry(REFUSED, {"topic": topic}, outcome="refused", reason=reason)
        await self.writer.commit([DeleteOp(path, ANY_VERSION) for path in paths], entry)

    async def creations(self, topic: str, numbers: Sequence[int], value: bytes) -> list[Op]:
        """Return the operations that create missing intents, in the order of `numbers`."""
        parent = intents_path(self.root, topic)
        paths = [parent, *(self.path(topic, number) for number in numbers)]
        found = await self.store.read_nodes(paths)
        missing = [path for path, node in zip(paths, found, strict=True) if node is None]
        return [CreateOp(path, b"" if path == parent else value) for path in missing]

    async def deletions(self, topic_partitions: Iterable[TopicPartition]) -> list[Op]:
        """Return the operations that delete the existing intents for these partitions."""
        return await self.writer.deletions([self.path(*one) for one in topic_partitions])
