"""What the active controller does when topics get partitions, or lose some (seed 1 H; R12).

Adding is one multi: the topic's node names the new partitions, and the orders for
them go. A partition without a state is then given its first leader, by this
controller or by any later one.

Removing is a list of steps, each of which any controller can repeat: the order
stands; metadata without the partition and StopReplica go to every live broker
until all have acknowledged; then one multi takes the partition's nodes, its place
in the topic's node, the order, and the intent to reassign it. A broker that is away
keeps its replica until it returns, and then finds that nobody knows it (stray), or
that the partition of this number begins with a later leader epoch than its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from leadline_client.errors import LeadlineError, PolicyViolation, StaleVersion
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.partition_intents import (
    RemoveIntent,
    decode_addition,
    decode_removal,
    encode_removal,
)
from leadline_common.zk.errors import BadVersion, MultiFailed, RequestTooLarge
from leadline_common.zk.ops import ANY_VERSION, DeleteOp, Op, SetOp, Stat
from leadline_common.znodes import AuditEntry, TopicAssignment
from leadline_controller.domain.cluster import ClusterImage, RemovalPending, TopicImage, TopicSet
from leadline_controller.domain.failover import init_leaders
from leadline_controller.domain.history import ASSIGNMENT
from leadline_controller.domain.partitions import (
    assignment_with,
    assignment_without,
    check_addition_intents,
    check_removal,
    check_removal_intents,
    plan_additions,
)
from leadline_controller.domain.topics import find_topic
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import StaleView, Why
from leadline_controller.runtime.reassignment.agent import ReassignmentAgent
from leadline_controller.runtime.topics.partition_events import (
    AddPartitions,
    PartitionIntentsChanged,
    PartitionsStopped,
    RemovePartitions,
)
from leadline_controller.runtime.topics.partition_intents import PartitionOrders

_log = logging.getLogger(__name__)

_OPS_PER_REMOVAL = 5
"""Its orders, to go and to move, its node, and the children of that (there should be one)."""


class PartitionManager(EventHandler):
    """The handlers of partitions that are added and removed, and the removals under way."""

    def __init__(self, desk: EventContext, reassignments: ReassignmentAgent) -> None:
        self._desk = desk
        self._reassignments = reassignments
        self._store = desk.office.store
        self._additions = PartitionOrders(desk, znodes.PARTITIONS_ADD, decode_addition)
        self._removals = PartitionOrders(desk, znodes.PARTITIONS_REMOVE, decode_removal)
        self._stopping: dict[str, asyncio.Task[None]] = {}

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {
            PartitionIntentsChanged: self.on_intents,
            PartitionsStopped: self.on_stopped,
            AddPartitions: self.on_add,
            RemovePartitions: self.on_remove,
        }

    async def take_over(self, cause: str) -> None:
        """Resume what an earlier controller began."""
        await self._look(cause)

    async def reconcile(self, event: events.Reconcile) -> None:
        """Look for orders whose watch was missed."""
        await self._look(event.cause)

    async def close(self) -> None:
        """End the waits for acknowledgements."""
        for task in self._stopping.values():
            task.cancel()
        await asyncio.gather(*self._stopping.values(), return_exceptions=True)

    @property
    def _image(self) -> ClusterImage:
        return self._desk.image

    # -- orders in ZooKeeper ---------------------------------------------------

    async def on_intents(self, event: PartitionIntentsChanged) -> None:
        """Take up every order that is not being carried out yet."""
        await self._look(event.cause)

    async def _look(self, cause: str) -> None:
        """Read all orders; none holds up the others, or a take-over."""
        for topic, orders in await self._additions.read(self._look_again):
            await self._heed(topic, orders, cause, adding=True)
        for topic, orders in await self._removals.read(self._look_again):
            await self._heed(topic, orders, cause, adding=False)

    def _look_again(self) -> None:
        self._desk.hint(PartitionIntentsChanged)

    async def _heed(
        self, name: str, orders: Mapping[int, bytes], cause: str, *, adding: bool
    ) -> None:
        topic = self._image.topics.get(name)
        try:
            if topic is None:
                await (self._additions if adding else self._removals).refuse_all(name, orders)
            elif topic.deleting or not topic.topic_id:
                return
            elif adding:
                await self.on_partitions_add(topic, orders, cause)
            else:
                await self.on_partitions_remove(topic, orders, cause)
        except (MultiFailed, LeadlineError) as failure:
            _log.warning("orders for partitions of %s have to wait: %s", name, failure)
        except StaleView as moved:
            _log.info("%s has changed meanwhile; looking again", moved)
            self._desk.hint(events.BrokersChanged, cause)
            self._desk.hint(events.Reconcile, cause)

    def _entry(self, kind: str, topic: TopicImage, **facts: Any) -> AuditEntry:
        resource = {"topic": topic.name, "topic_id": topic.topic_id}
        return self._desk.entry(kind, resource, **facts)

    # -- adding ----------------------------------------------------------------

    async def on_add(self, event: AddPartitions) -> None:
        """Add partitions by an operator's request.

        Raises:
            Refused: the request is against the rules; nothing was written.

        """
        topic = find_topic(self._image, event.topic)
        explicit = event.replica_assignment is not None
        known = await self._store.brokers_ever() if explicit else self._image.live
        added = plan_additions(topic, self._image, event.total, event.replica_assignment, known)
        if not event.dry_run:
            try:
                await self._add(topic, added, (), event.cause, "operator")
            except MultiFailed as failure:
                raise StaleVersion(f"topic {topic.name!r} has just changed: ask again") from failure
        event.settle(added)

    async def on_partitions_add(
        self, topic: TopicImage, orders: Mapping[int, bytes], cause: str
    ) -> None:
        """Add the partitions that somebody ordered in ZooKeeper (seed 1 H)."""
        if not orders:
            return
        wanted, refused = self._additions.decoded(topic, orders)
        known = await self._store.brokers_ever()
        replicas = {number: intent.replicas for number, intent in wanted.items()}
        found = check_addition_intents(topic, replicas, known)
        if found.accepted:
            paths = [self._additions.path(topic.name, number) for number in found.accepted]
            await self._add(topic, found.accepted, paths, cause)
        await self._additions.refuse(topic.name, refused | found.refused)

    async def _add(
        self,
        topic: TopicImage,
        added: Mapping[int, tuple[int, ...]],
        orders: Sequence[str],
        cause: str,
        actor: str = "",
    ) -> None:
        """Publish partitions in the topic's node, then their first leaders (init_leaders)."""
        entry = self._entry("partitions_added", topic, actor=actor, after={ASSIGNMENT: added})
        done = [DeleteOp(path, ANY_VERSION) for path in orders]
        await self._publish(topic, assignment_with(topic.assignment, added), done, entry)
        names = [TopicPartition(topic.name, number) for number in added]
        why = Why(cause, self._desk.office.actor, "leaders_initialised", "partitions added")
        await self._desk.write(init_leaders(self._image, names), why)
        self._desk.delivery.metadata()

    async def _publish(
        self,
        topic: TopicImage,
        assignment: TopicAssignment,
        others: Sequence[Op],
        entry: AuditEntry,
    ) -> None:
        """Write a topic's node, and do `others` in the same multi.

        Raises:
            PolicyViolation: the node would be larger than ZooKeeper takes.
            MultiFailed: somebody else has written one of the nodes; they are read anew.

        """
        node = SetOp(znodes.topic_path(topic.name), znodes.encode_topic(assignment), topic.version)
        try:
            written, *_ = await self._desk.writer.commit([node, *others], entry)
        except RequestTooLarge as problem:
            raise PolicyViolation(f"the topic has too many partitions: {problem}") from None
        except MultiFailed as failure:
            if isinstance(failure.error, BadVersion):
                self._desk.hint(events.Reconcile)
            raise
        if isinstance(written, Stat):
            change = TopicSet(topic.name, assignment, written.version, written.mzxid)
            self._image.apply([change])

    # -- removing --------------------------------------------------------------

    async def on_remove(self, event: RemovePartitions) -> None:
        """Write the orders; everything else follows from them.

        Raises:
            Refused: the request is against the rules; nothing was written.

        """
        topic = find_topic(self._image, event.topic)
        going = check_removal(topic, event.partitions)
        if not event.dry_run:
            value = encode_removal(RemoveIntent(topic.topic_id))
            orders = await self._removals.creations(topic.name, going, value)
            facts = {"actor": "operator", "after": {"partitions": sorted(going)}}
            entry = self._entry("partitions_removal_ordered", topic, **facts)
            await self._desk.writer.fenced(orders, entry)
            self._begin(topic, going, event.cause)
        event.settle(going)

    async def on_partitions_remove(
        self, topic: TopicImage, orders: Mapping[int, bytes], cause: str
    ) -> None:
        """Begin, or resume, the removals that are ordered in ZooKeeper (seed 1 H)."""
        wanted, refused = self._removals.decoded(topic, orders)
        done = [number for number in wanted if number not in topic.partitions]
        reasons = dict.fromkeys(done, "there is no such partition")
        found = check_removal_intents(topic, wanted.keys() - reasons.keys())
        going = {*found.accepted, *(topic.pending_removal & wanted.keys())}
        if going:
            self._begin(topic, going, cause)
        await self._removals.refuse(topic.name, refused | reasons | found.refused)

    def _begin(self, topic: TopicImage, numbers: Collection[int], cause: str) -> None:
        """Tell the brokers to stop, and wait beside the queue until all live ones have."""
        fresh = frozenset(numbers) - topic.pending_removal
        self._image.apply([RemovalPending(topic.name, fresh, self._image.zxid)])
        if fresh:
            self._desk.delivery.stop(topic.name, cause, fresh)
        if topic.name not in self._stopping:
            task = asyncio.create_task(self._await_stops(topic.name, cause))
            self._stopping[topic.name] = task

    async def _await_stops(self, name: str, cause: str) -> None:
        delivery = self._desk.delivery

        def stopped() -> bool:
            topic = self._image.topics.get(name)
            return topic is None or delivery.stopped(name, topic.pending_removal)

        await delivery.until(stopped)
        now = self._desk.office.clock.monotonic_ms()
        self._desk.post(PartitionsStopped(cause=cause, at_ms=now, topic=name))

    async def on_stopped(self, event: PartitionsStopped) -> None:
        """Remove the nodes of partitions that no live broker hosts any more."""
        self._stopping.pop(event.topic, None)
        topic = self._image.topics.get(event.topic)
        if topic is None or topic.deleting or not topic.pending_removal:
            return
        if not self._desk.delivery.stopped(topic.name, topic.pending_removal):  # a broker came back
            self._begin(topic, topic.pending_removal, event.cause)
            return
        numbers = sorted(topic.pending_removal, reverse=True)
        room = max(1, self._desk.office.settings.zookeeper_multi_max_ops // _OPS_PER_REMOVAL - 1)
        try:
            for start in range(0, len(numbers), room):
                await self._remove(topic, numbers[start : start + room])
        except MultiFailed as failure:  # the next reconciliation resumes it
            _log.warning("partitions of %s are not removed yet: %s", topic.name, failure)

    async def _remove(self, topic: TopicImage, numbers: Sequence[int]) -> None:
        """Delete all that there is of some partitions, in one multi with all orders for them.

        A leader may have written its ISR until it stopped: states are read once more,
        because the topic's node has to note an epoch that is above all of theirs.
        """
        names = [TopicPartition(topic.name, number) for number in numbers]
        self._desk.adopt(await self._store.read_states(names))
        ops = [*await self._node_deletions(names), *await self._removals.deletions(names)]
        ops += self._reassignments.removal_ops(names)
        gone = dict.fromkeys(numbers)
        before = {ASSIGNMENT: {n: topic.partitions[n].replicas for n in numbers}}
        entry = self._entry("partitions_removed", topic, before=before, after={ASSIGNMENT: gone})
        await self._publish(topic, assignment_without(topic, numbers), ops, entry)
        self._reassignments.removed(names)
        self._desk.delivery.forget(names)
        self._desk.delivery.metadata()

    async def _node_deletions(self, names: Sequence[TopicPartition]) -> list[Op]:
        """Return what deletes partitions' nodes and all below them, states as they were read."""
        parents = [znodes.partition_path(*name) for name in names]
        ops: list[Op] = []
        for name, parent, kids in zip(
            names, parents, await self._store.children(parents), strict=True
        ):
            if kids is None:
                continue
            partition = self._image.partition(name)
            version = partition.version if partition and partition.state else ANY_VERSION
            for kid in kids:
                path = f"{parent}/{kid}"
                exact = path == znodes.state_path(*name)
                ops.append(DeleteOp(path, version if exact else ANY_VERSION))
            ops.append(DeleteOp(parent, ANY_VERSION))
        return ops
