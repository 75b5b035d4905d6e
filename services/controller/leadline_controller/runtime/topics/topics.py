"""Handlers of topics that are created, found or deleted (Replication V3, section B; rule R12).

A deletion is a list of steps, each of which any controller can repeat. The tombstone is
in ZooKeeper; metadata without the topic and StopReplica go to every live broker until all
have acknowledged; then the nodes are deleted, children first, and the tombstone with the
topic's own node in the last multi. A broker that is down keeps its replicas until it
returns, and then finds that the topic is unknown (stray replicas).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import structlog

from leadline_client.errors import PolicyViolation, TopicDeletionPending
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common import znodes
from leadline_common.cause import current_cause
from leadline_common.settings import check_configs
from leadline_common.zk.errors import MultiFailed, NodeExists, RequestTooLarge
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp, Stat
from leadline_common.znodes import AuditEntry, TopicAssignment
from leadline_controller.domain.cluster import (
    NO_NODE,
    ClusterImage,
    ConfigsSet,
    DeletionPending,
    TopicGone,
    TopicImage,
    TopicSet,
)
from leadline_controller.domain.failover import on_topic_change
from leadline_controller.domain.history import ASSIGNMENT
from leadline_controller.domain.state import Tombstone
from leadline_controller.domain.topics import (
    check_may_create,
    check_topic_name,
    find_topic,
    plan_assignment,
)
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    ControllerEvent,
    ControllerRequest,
    DryRunRequest,
    Reply,
    Trigger,
)
from leadline_controller.runtime.engine.publishing import AuditLog, StatePublisher
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)

Assignment: TypeAlias = Mapping[int, tuple[int, ...]]
"""Partition number to replicas."""


class TopicsChanged(Trigger):
    """The watch on the list of topics fired."""


class DeletionsChanged(Trigger):
    """The watch on the tombstones fired."""


@dataclass(frozen=True, slots=True)
class TopicStopped(ControllerEvent):
    """Every live broker has stopped and deleted its replicas of a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class CreateTopic(DryRunRequest[Assignment]):
    """Create a topic; answered with its replicas once the partition states are written."""

    new: NewTopic

    @property
    def resource(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.new.name}


@dataclass(frozen=True, slots=True)
class DeleteTopic(ControllerRequest[str]):
    """Delete a topic; answered with the topic id once the tombstone is written."""

    topic: str

    @property
    def resource(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.topic}


@dataclass(eq=False)
class TopicManager(EventHandler):
    """Handles topic events, and holds the deletions in progress."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    configs: DynamicConfigs
    writer: StateWriter
    publisher: StatePublisher
    dispatcher: BrokerDispatcher
    audit: AuditLog
    new_id: Callable[[], str]
    random_index: Callable[[int], int]
    _stopping: set[str] = field(default_factory=set, init=False)

    async def on_elected(self) -> None:
        """Resume the deletions that an earlier controller began."""
        await self.reconcile()

    # -- creation --------------------------------------------------------------

    @CreateTopic.handler
    async def on_create(self, event: CreateTopic, reply: Reply[Assignment]) -> None:
        """Create a topic and its first leaders.

        Raises:
            Refused: the request is against the rules; nothing was written.

        """
        new = event.new
        check_topic_name(new.name)
        check_may_create(self.image, new.name)
        configs = check_configs("topic", new.configs)
        assignment = await self._plan(new)
        if not event.dry_run:
            await self._create(new.name, assignment, configs)
        reply.settle(assignment)

    async def _plan(self, new: NewTopic) -> Assignment:
        settings = self.configs.current()
        explicit = new.replica_assignment is not None
        known = await self.store.brokers_ever() if explicit else self.image.live
        count = max(1, len(self.image.brokers))
        return plan_assignment(
            new,
            self.image,
            known,
            default_partitions=settings.num_partitions,
            default_replication_factor=settings.default_replication_factor,
            start_index=self.random_index(count),
            shift=self.random_index(count),
        )

    async def _create(
        self,
        name: str,
        partitions: Assignment,
        configs: dict[str, str],
    ) -> None:
        assignment = TopicAssignment(self.new_id(), partitions)
        ops: list[Op] = [
            CreateOp(znodes.topic_path(name), znodes.encode_topic(assignment)),
            CreateOp(znodes.partitions_path(name)),
        ]
        if configs:
            ops.append(CreateOp(znodes.topic_config_path(name), znodes.encode_configs(configs)))
        after = {ASSIGNMENT: assignment.partitions, "configs": configs}
        entry = self._entry("topic_created", name, assignment.topic_id, "operator", after)
        try:
            zxid = (await self.writer.commit(ops, entry)).zxid
        except RequestTooLarge as problem:
            raise PolicyViolation(f"the topic has too many partitions: {problem}") from None
        except MultiFailed as failure:
            if isinstance(failure.error, NodeExists):
                self.queue.trigger(TopicsChanged)
                raise PolicyViolation(f"{failure.error.path} exists already") from None
            raise
        configs_set = ConfigsSet(name, configs, zxid, 0 if configs else NO_NODE)
        self.image.apply([TopicSet(name, assignment, 0, zxid), configs_set])
        self.writer.parent_exists(name)
        await self._init_leaders([name], "first leaders")

    async def _init_leaders(self, names: list[str], reason: str) -> None:
        """Publish the first leaders of topics (Replication V3, init_leaders)."""
        decisions = on_topic_change(self.image, names)
        await self.publisher.write(decisions, "leaders_initialised", reason)
        self.dispatcher.send_metadata()

    def _entry(
        self, kind: str, topic: str, topic_id: str, actor: str = "", after: Any = None
    ) -> AuditEntry:
        resource = {"topic": topic, "topic_id": topic_id}
        return self.audit.entry(kind, resource, actor=actor, after=after)

    # -- changes in ZooKeeper --------------------------------------------------

    @TopicsChanged.handler
    async def on_topics_changed(self) -> None:
        """Read new topics, and forget those that have gone."""
        await self.read_topics(everything=False)

    async def read_topics(self, *, everything: bool) -> None:
        """Apply topics that were created or removed in ZooKeeper; with `everything`, changed too.

        (Replication V3, on_topic_change.)
        """
        names = await self.store.topic_names(self._read_again)
        for name in sorted(self.image.topics.keys() - set(names)):
            self._forget(name)
        known = {t.name: t.zxid for t in self.image.topics.values()}
        wanted = names if everything else [name for name in names if name not in known]
        changes = await self.store.read_topics(wanted, known)
        found = [c.topic for c in changes if isinstance(c, TopicSet)]
        if self.image.apply(changes):
            self.dispatcher.send_metadata()
        if found:
            await self._initialise(found)

    async def _initialise(self, names: list[str]) -> None:
        """Give found topics an id, and their partitions without a state a first leader."""
        for name in names:
            topic = self.image.topics[name]
            if not topic.topic_id:
                await self._assign_id(topic)
        partitions = [
            TopicPartition(name, number)
            for name in names
            for number, partition in self.image.topics[name].partitions.items()
            if partition.state is None
        ]
        self.publisher.apply_read(await self.store.read_states(partitions))
        await self._init_leaders(names, "topic found")

    async def _assign_id(self, topic: TopicImage) -> None:
        """Assign an id to a topic that an operator wrote into ZooKeeper."""
        topic_id = self.new_id()
        assignment = msgspec.structs.replace(topic.assignment, topic_id=topic_id)
        path = znodes.topic_path(topic.name)
        after = {ASSIGNMENT: assignment.partitions}
        entry = self._entry("topic_named", topic.name, topic_id, after=after)
        (result,) = await self.writer.commit(
            [SetOp(path, znodes.encode_topic(assignment), topic.version)], entry
        )
        if isinstance(result, Stat):
            self.image.apply([TopicSet(topic.name, assignment, result.version, result.mzxid)])

    def _forget(self, name: str, zxid: int = 0) -> None:
        """Forget a topic whose node is gone; without a tombstone no replica is deleted."""
        topic = self.image.topics[name]
        if not topic.deleting:
            logger.error("topic node gone without a tombstone", topic=name)
        topic_partitions = [TopicPartition(name, number) for number in topic.partitions]
        self.image.apply([TopicGone(name, zxid)])
        self.dispatcher.forget(topic_partitions)
        self.dispatcher.send_metadata()

    def _read_again(self) -> None:
        self.queue.trigger(TopicsChanged)

    # -- deletion --------------------------------------------------------------

    @DeleteTopic.handler
    async def on_delete(self, event: DeleteTopic, reply: Reply[str]) -> None:
        """Write the tombstone, and begin the deletion.

        Raises:
            UnknownTopic: there is no such topic.
            TopicDeletionPending: somebody else has just written the tombstone.

        """
        topic = find_topic(self.image, event.topic)
        path, kind = znodes.delete_topic_path(topic.name), "topic_deletion_ordered"
        entry = self._entry(kind, topic.name, topic.topic_id, actor="operator")
        try:
            written = await self.writer.commit([CreateOp(path, topic.topic_id.encode())], entry)
        except MultiFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise
            self._tombstones_changed()
            raise TopicDeletionPending(f"topic {topic.name!r} is being deleted already") from None
        reply.settle(topic.topic_id)
        self._begin_deletion(topic, written.zxid)

    @DeletionsChanged.handler
    async def reconcile(self) -> None:
        """Read the tombstones; begin or resume each deletion, and delete stale tombstones."""
        for tombstone in await self.store.tombstones(self._tombstones_changed):
            try:
                await self._resume(tombstone)
            except MultiFailed as failure:  # It must not delay the others, or an election.
                logger.error("deletion failed", topic=tombstone.topic, error=str(failure))

    async def _resume(self, tombstone: Tombstone) -> None:
        topic = self.image.topics.get(tombstone.topic)
        if topic is None:
            await self._delete_nodes(tombstone.topic, tombstone.topic_id)
        elif tombstone.topic_id in ("", topic.topic_id):
            self._begin_deletion(topic)
        else:
            logger.warning("tombstone is for another topic id", topic=tombstone.topic)
            await self.writer.commit(
                [DeleteOp(znodes.delete_topic_path(tombstone.topic), ANY_VERSION)],
                self._entry("tombstone_dropped", tombstone.topic, tombstone.topic_id),
            )

    def _tombstones_changed(self) -> None:
        self.queue.trigger(DeletionsChanged)

    def _begin_deletion(self, topic: TopicImage, zxid: int = 0) -> None:
        """Have brokers delete the replicas, and wait beside the queue until they have."""
        if topic.name in self._stopping:
            return
        self.image.apply([DeletionPending(topic.name, zxid)])
        self.dispatcher.delete_replicas(topic.name)
        self._stopping.add(topic.name)
        self.run_in_background(self._await_stops(topic.name), "topic-stops")

    async def _await_stops(self, name: str) -> None:
        await self.dispatcher.until(lambda: self.dispatcher.is_stopped(name))
        self.queue.post(TopicStopped(name), current_cause())

    @TopicStopped.handler
    async def on_stopped(self, event: TopicStopped) -> None:
        """Delete the nodes of a topic that no live broker hosts any more."""
        self._stopping.discard(event.topic)
        topic = self.image.topics.get(event.topic)
        if topic is None:
            return
        if not self.dispatcher.is_stopped(event.topic):  # a broker came back
            self._begin_deletion(topic)
            return
        zxid = await self._delete_nodes(topic.name, topic.topic_id)
        self._forget(topic.name, zxid)

    async def _delete_nodes(self, name: str, topic_id: str) -> int:
        """Delete all nodes of a topic, the tombstone last; return the zxid of that multi."""
        (numbers,) = await self.store.children([znodes.partitions_path(name)])
        parents = [f"{znodes.partitions_path(name)}/{number}" for number in numbers or ()]
        nodes = [
            DeleteOp(path, ANY_VERSION)
            for parent, children in zip(parents, await self.store.children(parents), strict=True)
            for path in (*(f"{parent}/{child}" for child in children or ()), parent)
        ]
        entry = self._entry("topic_states_deleted", name, topic_id)
        await self.writer.commit_all(nodes, entry)
        last = (
            znodes.partitions_path(name),
            znodes.topic_path(name),
            znodes.topic_config_path(name),
            znodes.delete_topic_path(name),
        )
        ops = await self.writer.deletions(last)
        entry = self._entry("topic_deleted", name, topic_id)
        return (await self.writer.commit(ops, entry)).zxid
