"""What the active controller does when topics are created, found, or deleted (seed 1 B; R12).

A deletion is a list of steps, each of which any controller can repeat: the
tombstone stands; metadata without the topic and StopReplica go to every live
broker until all have acknowledged; then the nodes go, children first, and the
tombstone with the topic's own node in the last multi. A broker that is away keeps
its replica until it returns, and then finds that nobody knows it (stray).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from leadline_client.errors import PolicyViolation, TopicDeletionPending
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common import znodes
from leadline_common.settings import validate_topic_configs
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
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import Why

_log = logging.getLogger(__name__)


class TopicManager(EventHandler):
    """The handlers of topic events, and the deletions under way."""

    def __init__(self, desk: EventContext) -> None:
        self._desk = desk
        self._store = desk.office.store
        self._stopping: dict[str, asyncio.Task[None]] = {}

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {
            events.TopicsChanged: self.on_topic_change,
            events.DeletionsChanged: self.on_deletions,
            events.TopicStopped: self.on_stopped,
            events.CreateTopic: self.on_create,
            events.DeleteTopic: self.on_delete,
        }

    async def take_over(self, cause: str) -> None:
        """Resume the deletions that an earlier controller began."""
        await self.look_for_deletions(cause)

    async def reconcile(self, event: events.Reconcile) -> None:
        """Look for tombstones whose watch was missed."""
        await self.look_for_deletions(event.cause)

    @property
    def _image(self) -> ClusterImage:
        return self._desk.image

    async def close(self) -> None:
        """End what runs beside the queue."""
        for task in self._stopping.values():
            task.cancel()
        await asyncio.gather(*self._stopping.values(), return_exceptions=True)

    # -- creation --------------------------------------------------------------

    async def on_create(self, event: events.CreateTopic) -> None:
        """Create a topic and its first leaders.

        Raises:
            Refused: the request is against the rules; nothing was written.

        """
        new = event.new
        check_topic_name(new.name)
        check_may_create(self._image, new.name)
        configs = validate_topic_configs(new.configs)
        assignment = await self._plan(new)
        if not event.dry_run:
            await self._create(new.name, assignment, configs, event.cause)
        event.settle(assignment)

    async def _plan(self, new: NewTopic) -> dict[int, tuple[int, ...]]:
        settings, chance = self._desk.configs.current(), self._desk.office.random_index
        explicit = new.replica_assignment is not None
        known = await self._store.brokers_ever() if explicit else self._image.live
        count = max(1, len(self._image.brokers))
        return plan_assignment(
            new,
            self._image,
            known,
            default_partitions=settings.num_partitions,
            default_replication_factor=settings.default_replication_factor,
            start_index=chance(count),
            shift=chance(count),
        )

    async def _create(
        self,
        name: str,
        partitions: Mapping[int, tuple[int, ...]],
        configs: dict[str, str],
        cause: str,
    ) -> None:
        assignment = TopicAssignment(self._desk.office.new_id(), partitions)
        ops: list[Op] = [
            CreateOp(znodes.topic_path(name), znodes.encode_topic(assignment)),
            CreateOp(znodes.partitions_path(name)),
        ]
        if configs:
            ops.append(CreateOp(znodes.topic_config_path(name), znodes.encode_configs(configs)))
        entry = self._entry("topic_created", name, assignment.topic_id, actor="operator")
        told = {ASSIGNMENT: assignment.partitions, "configs": configs}
        entry = msgspec.structs.replace(entry, after=told)
        try:
            zxid = (await self._desk.writer.commit(ops, entry)).zxid
        except RequestTooLarge as problem:
            raise PolicyViolation(f"the topic has too many partitions: {problem}") from None
        except MultiFailed as failure:
            if isinstance(failure.error, NodeExists):
                self._desk.hint(events.TopicsChanged)
                raise PolicyViolation(f"{failure.error.path} exists already") from None
            raise
        configs_set = ConfigsSet(name, configs, zxid, 0 if configs else NO_NODE)
        self._image.apply([TopicSet(name, assignment, 0, zxid), configs_set])
        self._desk.writer.rooted(name)
        await self._lead([name], "first leaders", cause)

    async def _lead(self, names: list[str], reason: str, cause: str) -> None:
        """Publish the first leaders of topics (seed 1: init_leaders)."""
        why = Why(cause, self._desk.office.actor, "leaders_initialised", reason)
        await self._desk.write(on_topic_change(self._image, names), why)
        self._desk.delivery.metadata()

    def _entry(self, kind: str, topic: str, topic_id: str, actor: str = "") -> AuditEntry:
        return self._desk.entry(kind, {"topic": topic, "topic_id": topic_id}, actor=actor)

    # -- what others did -------------------------------------------------------

    async def on_topic_change(self, event: events.TopicsChanged | events.Reconcile) -> None:
        """Take in topics that were created, changed or removed in ZooKeeper directly."""
        names = await self._store.topic_names(self._look_again)
        vanished = self._image.topics.keys() - set(names)
        for name in sorted(vanished):
            self._forget(name)
        known = {t.name: t.zxid for t in self._image.topics.values()}
        wanted = (
            names
            if isinstance(event, events.Reconcile)
            else [name for name in names if name not in known]
        )
        changes = await self._store.read_topics(wanted, known)
        fresh = [c.topic for c in changes if isinstance(c, TopicSet)]
        if self._image.apply(changes):
            self._desk.delivery.metadata()
        if fresh:
            await self._take_up(fresh, event.cause)

    async def _take_up(self, names: list[str], cause: str) -> None:
        """Give found topics an id and, where they have no state, first leaders."""
        for name in names:
            topic = self._image.topics[name]
            if not topic.topic_id:
                await self._name(topic)
        partitions = [
            TopicPartition(name, number)
            for name in names
            for number, partition in self._image.topics[name].partitions.items()
            if partition.state is None
        ]
        self._desk.adopt(await self._store.read_states(partitions))
        await self._lead(names, "topic found", cause)

    async def _name(self, topic: TopicImage) -> None:
        """Give a topic that was written by hand its id."""
        topic_id = self._desk.office.new_id()
        assignment = msgspec.structs.replace(topic.assignment, topic_id=topic_id)
        path = znodes.topic_path(topic.name)
        entry = self._entry("topic_named", topic.name, topic_id)
        entry = msgspec.structs.replace(entry, after={ASSIGNMENT: assignment.partitions})
        (result,) = await self._desk.writer.commit(
            [SetOp(path, znodes.encode_topic(assignment), topic.version)], entry
        )
        if isinstance(result, Stat):
            self._image.apply([TopicSet(topic.name, assignment, result.version, result.mzxid)])

    def _forget(self, name: str, zxid: int = 0) -> None:
        """Let go of a topic whose node is gone without a tombstone: no replica is deleted."""
        topic = self._image.topics[name]
        if not topic.deleting:
            _log.error("topic %s vanished from ZooKeeper without a tombstone", name)
        names = [TopicPartition(name, number) for number in topic.partitions]
        self._image.apply([TopicGone(name, zxid)])
        self._desk.delivery.forget(names)
        self._desk.delivery.metadata()

    def _look_again(self) -> None:
        self._desk.hint(events.TopicsChanged)

    # -- deletion --------------------------------------------------------------

    async def on_delete(self, event: events.DeleteTopic) -> None:
        """Write the tombstone; everything else follows from it.

        Raises:
            UnknownTopic: there is no such topic.
            TopicDeletionPending: somebody else has just ordered it.

        """
        topic = find_topic(self._image, event.topic)
        path, kind = znodes.delete_topic_path(topic.name), "topic_deletion_ordered"
        entry = self._entry(kind, topic.name, topic.topic_id, actor="operator")
        try:
            ordered = await self._desk.writer.commit(
                [CreateOp(path, topic.topic_id.encode())], entry
            )
        except MultiFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise
            self._look_for_tombstones()
            raise TopicDeletionPending(f"topic {topic.name!r} is being deleted already") from None
        event.settle(topic.topic_id)
        self._begin(topic, event.cause, ordered.zxid)

    async def on_deletions(self, event: events.DeletionsChanged) -> None:
        """Take up every tombstone that is not being acted on yet."""
        await self.look_for_deletions(event.cause)

    async def look_for_deletions(self, cause: str) -> None:
        """Read the tombstones; begin or resume each deletion, and clear stale ones."""
        for stone in await self._store.tombstones(self._look_for_tombstones):
            try:
                await self._heed(stone, cause)
            except MultiFailed as failure:  # no reason to hold up the others, or a take-over
                _log.error("the deletion of %s cannot go on: %s", stone.topic, failure)

    async def _heed(self, stone: Tombstone, cause: str) -> None:
        topic = self._image.topics.get(stone.topic)
        if topic is None:
            await self._delete_nodes(stone.topic, stone.topic_id)
        elif stone.topic_id in ("", topic.topic_id):
            self._begin(topic, cause)
        else:
            _log.warning("the tombstone of %s is for another topic id", stone.topic)
            await self._desk.writer.commit(
                [DeleteOp(znodes.delete_topic_path(stone.topic), ANY_VERSION)],
                self._entry("tombstone_dropped", stone.topic, stone.topic_id),
            )

    def _look_for_tombstones(self) -> None:
        self._desk.hint(events.DeletionsChanged)

    def _begin(self, topic: TopicImage, cause: str, zxid: int = 0) -> None:
        """Tell the brokers to stop, and wait beside the queue until all live ones have."""
        if topic.name in self._stopping:
            return
        self._image.apply([DeletionPending(topic.name, zxid)])
        self._desk.delivery.stop(topic.name, cause)
        task = asyncio.create_task(self._await_stops(topic.name, cause))
        self._stopping[topic.name] = task

    async def _await_stops(self, name: str, cause: str) -> None:
        delivery = self._desk.delivery
        await delivery.until(lambda: delivery.stopped(name))
        now = self._desk.office.clock.monotonic_ms()
        self._desk.post(events.TopicStopped(cause=cause, at_ms=now, topic=name))

    async def on_stopped(self, event: events.TopicStopped) -> None:
        """Remove the nodes of a topic that no live broker hosts any more."""
        self._stopping.pop(event.topic, None)
        topic = self._image.topics.get(event.topic)
        if topic is None:
            return
        if not self._desk.delivery.stopped(event.topic):  # a broker has come back meanwhile
            self._begin(topic, event.cause)
            return
        zxid = await self._delete_nodes(topic.name, topic.topic_id)
        self._forget(topic.name, zxid)

    async def _delete_nodes(self, name: str, topic_id: str) -> int:
        """Delete what there is of a topic, the tombstone last; return that transaction."""
        (numbers,) = await self._store.children([znodes.partitions_path(name)])
        parents = [f"{znodes.partitions_path(name)}/{number}" for number in numbers or ()]
        nodes = [
            DeleteOp(path, ANY_VERSION)
            for parent, kids in zip(parents, await self._store.children(parents), strict=True)
            for path in (*(f"{parent}/{kid}" for kid in kids or ()), parent)
        ]
        entry = self._entry("topic_states_deleted", name, topic_id)
        await self._desk.writer.fenced(nodes, entry)
        last = (
            znodes.partitions_path(name),
            znodes.topic_path(name),
            znodes.topic_config_path(name),
            znodes.delete_topic_path(name),
        )
        found = await self._store.read_nodes(last)
        ops = [
            DeleteOp(path, ANY_VERSION)
            for path, node in zip(last, found, strict=True)
            if node is not None
        ]
        entry = self._entry("topic_deleted", name, topic_id)
        return (await self._desk.writer.commit(ops, entry)).zxid
