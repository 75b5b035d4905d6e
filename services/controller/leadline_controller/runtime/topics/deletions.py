"""Handlers of topic deletions (rule R12).

A deletion is a list of steps, each of which any controller can repeat. The tombstone is
in ZooKeeper; metadata without the topic and StopReplica go to every live broker until all
have acknowledged; then the nodes are deleted, children first, and the tombstone with the
topic's own node in the last multi. A broker that is down keeps its replicas until it
returns, and then finds that the topic is unknown (stray replicas).

A topic whose node vanishes without a tombstone is forgotten, and nothing of it is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from leadline_client.errors import TopicDeletionPending
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.access.caller import current_actor
from leadline_common.cause import current_cause
from leadline_common.partition_intents import intents_path
from leadline_common.zk.errors import MultiFailed, NodeExists
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.cluster import (
    ClusterImage,
    DeletionPending,
    TopicGone,
    TopicImage,
)
from leadline_controller.domain.history import TOPIC_DELETED, TOPIC_DELETION_ORDERED
from leadline_controller.domain.state import ReadNode, Tombstone
from leadline_controller.domain.topics import find_topic, is_meant_for
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    ControllerEvent,
    ControllerRequest,
    Reconcile,
    Reply,
    Trigger,
)
from leadline_controller.runtime.engine.external_changes import ExternalChanges
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)


class DeletionsChanged(Trigger):
    """The watch on the tombstones fired."""


@dataclass(frozen=True, slots=True)
class TopicStopped(ControllerEvent):
    """Every live broker has stopped and deleted its replicas of a topic of this name and id."""

    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class DeleteTopic(ControllerRequest[str]):
    """Delete a topic; answered with the topic id once the tombstone is written."""

    topic: str

    @property
    def resource(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.topic}


def forget_topic(
    image: ClusterImage, dispatcher: BrokerDispatcher, name: str, zxid: int = 0
) -> None:
    """Forget a topic whose node is gone; without a tombstone no replica is deleted."""
    topic_partitions = [TopicPartition(name, number) for number in image.topics[name].partitions]
    image.apply([TopicGone(name, zxid)])
    dispatcher.forget(topic_partitions)
    dispatcher.send_metadata()


@dataclass(eq=False)
class DeletionManager(EventHandler):
    """Handles deletions, and holds those in progress."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    writer: StateWriter
    dispatcher: BrokerDispatcher
    audit: AuditLog
    external: ExternalChanges
    charge_partitions: Callable[[int], None]
    _stopping: set[tuple[str, str]] = field(default_factory=set, init=False)
    """The name and the id of each topic that brokers are deleting."""

    async def on_elected(self) -> None:
        """Resume the deletions that an earlier controller began."""
        await self.reconcile()

    @DeleteTopic.handler
    async def on_delete(self, event: DeleteTopic, reply: Reply[str]) -> None:
        """Write the tombstone, and begin the deletion.

        Raises:
            UnknownTopic: there is no such topic.
            TopicDeletionPending: somebody else has just written the tombstone.

        """
        topic = find_topic(self.image, event.topic)
        self.charge_partitions(len(topic.partitions))
        path = znodes.delete_topic_path(topic.name)
        entry = self._entry(
            TOPIC_DELETION_ORDERED, topic.name, topic.topic_id, actor=current_actor()
        )
        try:
            written = await self.writer.commit([CreateOp(path, topic.topic_id.encode())], entry)
        except MultiFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise
            self._tombstones_changed()
            raise TopicDeletionPending(f"topic {topic.name!r} is being deleted already") from None
        reply.settle(topic.topic_id)
        self._begin(topic, written.zxid)

    @DeletionsChanged.handler
    async def reconcile(self) -> None:
        """Read the tombstones; begin or resume each deletion, and refuse the other tombstones."""
        tombstones = await self.store.tombstones(self._tombstones_changed)
        self.external.forget_tombstones(tombstones)
        for tombstone in tombstones:
            try:
                await self._resume(tombstone)
            except MultiFailed as failure:  # It must not delay the others, or an election.
                logger.error("deletion failed", topic=tombstone.topic, error=str(failure))

    async def _resume(self, tombstone: Tombstone) -> None:
        topic = self.image.topics.get(tombstone.topic)
        if topic is None:
            await self._delete_unknown(tombstone)
        elif is_meant_for(topic, tombstone.topic_id):
            await self.external.record_deletion(tombstone)
            self._begin(topic)
        else:
            await self._refuse(tombstone, "it was meant for another topic of the same name")

    async def _delete_unknown(self, tombstone: Tombstone) -> None:
        """Delete what is left of a topic that the image does not have."""
        name = tombstone.topic
        paths = (znodes.topic_path(name), znodes.topic_config_path(name))
        topic, configs = await self.store.read_nodes(paths)
        if topic is None and configs is None:
            await self._refuse(tombstone, f"there is no topic {name!r}")
        elif _is_other(topic, tombstone.topic_id):
            await self._refuse(tombstone, "it was meant for another topic of the same name")
        else:
            await self._delete_nodes(name, tombstone.topic_id)

    async def _refuse(self, tombstone: Tombstone, reason: str) -> None:
        logger.warning("tombstone refused", topic=tombstone.topic, reason=reason)
        entry = self._entry(
            "tombstone_dropped",
            tombstone.topic,
            tombstone.topic_id,
            outcome="refused",
            reason=reason,
        )
        path = znodes.delete_topic_path(tombstone.topic)
        await self.writer.commit([DeleteOp(path, ANY_VERSION)], entry)

    def _entry(self, kind: str, topic: str, topic_id: str, **members: Any) -> AuditEntry:
        resource = {"topic": topic, "topic_id": topic_id}
        return self.audit.entry(kind, resource, **members)

    def _tombstones_changed(self) -> None:
        self.queue.trigger(DeletionsChanged)

    # -- stopping --------------------------------------------------------------

    def _begin(self, topic: TopicImage, zxid: int = 0) -> None:
        """Have brokers delete the replicas, and wait beside the queue until they have."""
        stopping = (topic.name, topic.topic_id)
        if stopping in self._stopping:
            return
        self.image.apply([DeletionPending(topic.name, zxid)])
        self.dispatcher.delete_replicas(topic.name)
        self._stopping.add(stopping)
        self.run_in_background(self._await_stops(*stopping), "topic-stops")

    async def _await_stops(self, name: str, topic_id: str) -> None:
        await self.dispatcher.until(lambda: self.dispatcher.is_stopped(name))
        self.queue.post(TopicStopped(name, topic_id), current_cause())

    @TopicStopped.handler
    async def on_stopped(self, event: TopicStopped) -> None:
        """Delete the nodes of a topic that no live broker hosts any more.

        Another topic of the name may have followed it, which nobody has deleted.
        """
        self._stopping.discard((event.topic, event.topic_id))
        topic = self.image.topics.get(event.topic)
        if topic is None or not topic.deleting:
            return
        if not self.dispatcher.is_stopped(event.topic):  # a broker came back
            self._begin(topic)
            return
        (node,) = await self.store.read_nodes([znodes.topic_path(topic.name)])
        if _is_other(node, topic.topic_id):
            logger.warning("topic was recreated by others", topic=topic.name)
            self.queue.trigger(Reconcile)  # It reads the new topic, and refuses the tombstone.
            return
        zxid = await self._delete_nodes(topic.name, topic.topic_id)
        forget_topic(self.image, self.dispatcher, topic.name, zxid)

    # -- nodes -----------------------------------------------------------------

    async def _delete_nodes(self, name: str, topic_id: str) -> int:
        """Delete all nodes of a topic, the tombstone last; return the zxid of that multi.

        Partition intents go with the topic: a later topic of the name must not get them.
        """
        ops = [*await self._state_deletions(name), *await self._intent_deletions(name)]
        entry = self._entry("topic_states_deleted", name, topic_id)
        await self.writer.commit_all(ops, entry)
        last = (
            znodes.partitions_path(name),
            znodes.topic_path(name),
            znodes.topic_config_path(name),
            znodes.delete_topic_path(name),
        )
        entry = self._entry(TOPIC_DELETED, name, topic_id)
        return (await self.writer.commit(await self.writer.deletions(last), entry)).zxid

    async def _state_deletions(self, name: str) -> list[Op]:
        (numbers,) = await self.store.children([znodes.partitions_path(name)])
        parents = [f"{znodes.partitions_path(name)}/{number}" for number in numbers or ()]
        return _with_children(parents, await self.store.children(parents))

    async def _intent_deletions(self, name: str) -> list[Op]:
        roots = (znodes.PARTITIONS_ADD, znodes.PARTITIONS_REMOVE)
        parents = [intents_path(root, name) for root in roots]
        return _with_children(parents, await self.store.children(parents))


def _with_children(parents: Sequence[str], children: Sequence[list[str] | None]) -> list[Op]:
    """Return the deletions of nodes after their children; a node without a list is not there."""
    return [
        DeleteOp(path, ANY_VERSION)
        for parent, names in zip(parents, children, strict=True)
        if names is not None
        for path in (*(f"{parent}/{name}" for name in names), parent)
    ]


def _is_other(node: ReadNode | None, topic_id: str) -> bool:
    """Return whether a topic's node says that it is another topic than the one with this id."""
    if node is None or not topic_id:
        return False
    try:
        found = znodes.decode_topic(node.data).topic_id
    except (msgspec.MsgspecError, ValueError):
        return False
    return found not in ("", topic_id)
