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

from leadline_common.partition_intents import (
    AddIntent,
    RemoveIntent,
    decode_removal,
    intents_path,
    is_partition,
)
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op
from leadline_controller.domain.cluster import TopicImage
from leadline_controller.domain.partitions import check_removal_intents
from leadline_controller.domain.topics import is_meant_for
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


def decode_intents(
    decode_one: Callable[[bytes], _Intent], topic: TopicImage, intents: Mapping[str, bytes]
) -> tuple[dict[int, _Intent], dict[str, str]]:
    """Return the valid intents for a topic by partition, and the reasons against others by name."""
    valid: dict[int, _Intent] = {}
    reasons: dict[str, str] = {}
    for name, data in intents.items():
        try:
            intent = decode_one(data)
        except msgspec.MsgspecError as problem:
            reasons[name] = f"it cannot be read: {problem}"
            continue
        if not is_partition(name):
            reasons[name] = "its name is no partition"
        elif is_meant_for(topic, intent.topic_id):
            valid[int(name)] = intent
        else:
            reasons[name] = "it was meant for another topic of the same name"
    return valid, reasons


class FoundRemovals(msgspec.Struct, frozen=True):
    """The partitions of a topic that intents remove, and the reasons against other intents."""

    numbers: frozenset[int]
    refused: dict[str, str]


def find_removals(topic: TopicImage, intents: Mapping[str, bytes]) -> FoundRemovals:
    """Return what the intents to remove partitions ask for, begun removals included."""
    valid, refused = decode_intents(decode_removal, topic, intents)
    unknown = valid.keys() - topic.partitions.keys()
    found = check_removal_intents(topic, valid.keys() - unknown)
    numbers = found.accepted.keys() | (topic.pending_removal & valid.keys())
    reasons = found.refused | dict.fromkeys(unknown, "there is no such partition")
    return FoundRemovals(frozenset(numbers), refused | by_name(reasons))


def by_name(reasons: Mapping[int, str]) -> dict[str, str]:
    """Return reasons by the names of nodes instead of by partitions."""
    return {str(number): reason for number, reason in reasons.items()}


@dataclass(eq=False)
class PartitionIntentStore(Generic[_Intent]):
    """The intents of one kind, all below `root`; `decode_one` decodes one."""

    root: str
    decode_one: Callable[[bytes], _Intent]
    store: ControllerStore
    writer: StateWriter
    audit: AuditLog

    async def read(self, wake: Wake) -> list[tuple[str, dict[str, bytes]]]:
        """Return the intents by topic, and call `wake` when there are new ones."""
        return sorted((await self.store.intents(self.root, wake)).items())

    def decode(
        self, topic: TopicImage, intents: Mapping[str, bytes]
    ) -> tuple[dict[int, _Intent], dict[str, str]]:
        """Decode a topic's intents, like `decode_intents`."""
        return decode_intents(self.decode_one, topic, intents)

    async def refuse(self, topic: str, reasons: Mapping[str, str]) -> None:
        """Delete intents that cannot be executed, and record the reasons in the audit."""
        for name, reason in reasons.items():
            logger.error("intent refused", path=self._path(topic, name), reason=reason)
            resource: dict[str, Any] = {"topic": topic}
            if is_partition(name):
                resource["partition"] = int(name)
            entry = self.audit.entry(REFUSED, resource, outcome="refused", reason=reason)
            await self.writer.commit(await self._deletions(topic, [name]), entry)

    async def refuse_all(self, topic: str, names: Iterable[str]) -> None:
        """Refuse the intents for a topic that does not exist."""
        await self.refuse(topic, dict.fromkeys(names, f"there is no topic {topic!r}"))

    async def creations(self, topic: str, numbers: Sequence[int], value: bytes) -> list[Op]:
        """Return the operations that create missing intents, in the order of `numbers`."""
        parent = intents_path(self.root, topic)
        paths = [parent, *(self._path(topic, str(number)) for number in numbers)]
        found = await self.store.read_nodes(paths)
        missing = [path for path, node in zip(paths, found, strict=True) if node is None]
        return [CreateOp(path, b"" if path == parent else value) for path in missing]

    async def deletions(self, topic: str, numbers: Iterable[int]) -> list[Op]:
        """Return the operations that delete the existing intents for these partitions.

        The parent goes with the last intent. ZooKeeper refuses the operations if somebody
        has just added one.
        """
        return await self._deletions(topic, map(str, numbers))

    async def _deletions(self, topic: str, names: Iterable[str]) -> list[Op]:
        parent, doomed = intents_path(self.root, topic), set(names)
        (present,) = await self.store.children([parent])
        ops: list[Op] = [
            DeleteOp(self._path(topic, name), ANY_VERSION)
            for name in present or ()
            if name in doomed
        ]
        if ops and len(ops) == len(present or ()):
            ops.append(DeleteOp(parent, ANY_VERSION))
        return ops

    def _path(self, topic: str, name: str) -> str:
        return f"{intents_path(self.root, topic)}/{name}"
