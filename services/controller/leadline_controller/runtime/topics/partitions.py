"""Handlers of added and removed partitions (Replication V3, section H; rule R12).

Adding is one multi: it names the new partitions in the topic's node and deletes the
intents for them. This controller or any later one then elects the first leader of each
partition without a state.

Removing is a list of steps, each of which any controller can repeat. The intent is in
ZooKeeper; metadata without the partition and StopReplica go to every live broker until
all have acknowledged; then one multi deletes the partition's nodes, its place in the
topic's node, the intent, and the intent to reassign it. A broker that is down keeps its
replica until it returns. It then finds that the partition is unknown (a stray replica),
or that the partition of this number begins with a later leader epoch than its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from leadline_client.errors import LeadlineError, PolicyViolation, StaleVersion
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.access.caller import current_actor
from leadline_common.cause import current_cause
from leadline_common.partition_intents import (
    RemoveIntent,
    decode_addition,
    decode_removal,
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
    plan_additions,
)
from leadline_controller.domain.topics import find_topic
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    BrokersChanged,
    Reconcile,
    Reply,
)
from leadline_controller.runtime.engine.publishing import AuditLog, StatePublisher
from leadline_controller.runtime.engine.state_writer import StaleImage, StateWriter
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.reassignment.agent import ReassignmentAgent
from leadline_controller.runtime.topics.partition_intents import (
    AddPartitions,
    PartitionIntentsChanged,
    PartitionIntentStore,
    PartitionsStopped,
    RemovePartitions,
    by_name,
    find_removals,
)

logger = structlog.get_logger(__name__)

_OPS_PER_REMOVAL = 5
"""The intents to remove and to reassign it, its node, and the node's children (usually one)."""


@dataclass(eq=False)
class PartitionManager(EventHandler):
    """Handles partitions that are added and removed, and holds the removals in progress."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    writer: StateWriter
    publisher: StatePublisher
    dispatcher: BrokerDispatcher
    audit: AuditLog
    agent: ReassignmentAgent
    charge_partitions: Callable[[int], None]
    _stopping: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._additions = PartitionIntentStore(
            znodes.PARTITIONS_ADD, decode_addition, self.store, self.writer, self.audit
        )
        self._removals = PartitionIntentStore(
            znodes.PARTITIONS_REMOVE, decode_removal, self.store, self.writer, self.audit
        )

    async def on_elected(self) -> None:
        """Resume what an earlier controller began."""
        await self.reconcile()

    # -- intents in ZooKeeper --------------------------------------------------

    @PartitionIntentsChanged.handler
    async def reconcile(self) -> None:
        """Read and execute all intents; the failure of one does not stop the others."""
        for topic, intents in await self._additions.read(self._read_again):
            await self._execute(topic, intents, adding=True)
        for topic, intents in await self._removals.read(self._read_again):
            await self._execute(topic, intents, adding=False)

    def _read_again(self) -> None:
        self.queue.trigger(PartitionIntentsChanged)

    async def _execute(self, name: str, intents: Mapping[str, bytes], *, adding: bool) -> None:
        topic = self.image.topics.get(name)
        try:
            if topic is None:
                await (self._additions if adding else self._removals).refuse_all(name, intents)
            elif not topic.is_visible:
                return
            elif adding:
                await self.on_partitions_add(topic, intents)
            else:
                await self.on_partitions_remove(topic, intents)
        except (MultiFailed, LeadlineError) as error:
            logger.warning("partition intents not executed yet", topic=name, error=str(error))
        except StaleImage as error:
            logger.info("broker has changed; reading again", path=str(error))
            self.queue.trigger(BrokersChanged, current_cause())
            self.queue.trigger(Reconcile, current_cause())

    def _entry(self, kind: str, topic: TopicImage, **members: Any) -> AuditEntry:
        resource = {"topic": topic.name, "topic_id": topic.topic_id}
        return self.audit.entry(kind, resource, **members)

    # -- adding ----------------------------------------------------------------

    @AddPartitions.handler
    async def on_add(
        self, event: AddPartitions, reply: Reply[Mapping[int, tuple[int, ...]]]
    ) -> None:
        """Add partitions.

        Raises:
            Refused: the request is against the rules; nothing was written.

        """
        topic = find_topic(self.image, event.topic)
        explicit = event.replica_assignment is not None
        known = await self.store.brokers_ever() if explicit else self.image.live
        added = plan_additions(topic, self.image, event.total, event.replica_assignment, known)
        if not event.dry_run:
            self.charge_partitions(len(added))
            try:
                await self._add(topic, added, (), current_actor())
            except MultiFailed as failure:
                raise StaleVersion(f"topic {topic.name!r} has just changed: ask again") from failure
        reply.settle(added)

    async def on_partitions_add(self, topic: TopicImage, intents: Mapping[str, bytes]) -> None:
        """Add the partitions that intents ask for (Replication V3, section H)."""
        if not intents:
            return
        valid, refused = self._additions.decode(topic, intents)
        known = await self.store.brokers_ever()
        replicas = {number: intent.replicas for number, intent in valid.items()}
        found = check_addition_intents(topic, replicas, known)
        if found.accepted:
            executed = await self._additions.deletions(topic.name, found.accepted)
            await self._add(topic, found.accepted, executed)
        await self._additions.refuse(topic.name, refused | by_name(found.refused))

    async def _add(
        self,
        topic: TopicImage,
        added: Mapping[int, tuple[int, ...]],
        executed: Sequence[Op],
        actor: str = "",
    ) -> None:
        """Publish partitions in the topic's node, then their first leaders (init_leaders)."""
        entry = self._entry("partitions_added", topic, actor=actor, after={ASSIGNMENT: added})
        await self._publish(topic, assignment_with(topic.assignment, added), executed, entry)
        topic_partitions = [TopicPartition(topic.name, number) for number in added]
        decisions = init_leaders(self.image, topic_partitions)
        await self.publisher.write(decisions, "leaders_initialised", "partitions added")
        self.dispatcher.send_metadata()

    async def _publish(
        self,
        topic: TopicImage,
        assignment: TopicAssignment,
        others: Sequence[Op],
        entry: AuditEntry,
    ) -> None:
        """Write a topic's node, and apply the operations `others` in the same multi.

        Raises:
            PolicyViolation: the node would be larger than ZooKeeper accepts.
            MultiFailed: somebody else has written one of the nodes; a reconciliation follows.

        """
        node = SetOp(znodes.topic_path(topic.name), znodes.encode_topic(assignment), topic.version)
        try:
            written, *_ = await self.writer.commit([node, *others], entry)
        except RequestTooLarge as problem:
            raise PolicyViolation(f"the topic has too many partitions: {problem}") from None
        except MultiFailed as failure:
            if isinstance(failure.error, BadVersion):
                self.queue.trigger(Reconcile)
            raise
        if isinstance(written, Stat):
            change = TopicSet(topic.name, assignment, written.version, written.mzxid)
            self.image.apply([change])

    # -- removing --------------------------------------------------------------

    @RemovePartitions.handler
    async def on_remove(self, event: RemovePartitions, reply: Reply[tuple[int, ...]]) -> None:
        """Write the intents to remove partitions, and begin.

        Raises:
            Refused: the request is against the rules; nothing was written.

        """
        topic = find_topic(self.image, event.topic)
        numbers = check_removal(topic, event.partitions)
        if not event.dry_run:
            self.charge_partitions(len(numbers))
            value = znodes.encode_value(RemoveIntent(topic.topic_id))
            intents = await self._removals.creations(topic.name, numbers, value)
            members = {"actor": current_actor(), "after": {"partitions": sorted(numbers)}}
            entry = self._entry("partitions_removal_ordered", topic, **members)
            await self.writer.commit_all(intents, entry)
            self._begin_removal(topic, numbers)
        reply.settle(numbers)

    async def on_partitions_remove(self, topic: TopicImage, intents: Mapping[str, bytes]) -> None:
        """Begin or resume the removals that intents ask for (Replication V3, section H)."""
        found = find_removals(topic, intents)
        if found.numbers:
            self._begin_removal(topic, found.numbers)
        await self._removals.refuse(topic.name, found.refused)

    def _begin_removal(self, topic: TopicImage, numbers: Collection[int]) -> None:
        """Have brokers delete the replicas, and wait beside the queue until they have."""
        new = frozenset(numbers) - topic.pending_removal
        self.image.apply([RemovalPending(topic.name, new, self.image.zxid)])
        if new:
            self.dispatcher.delete_replicas(topic.name, new)
        if topic.name not in self._stopping:
            self._stopping.add(topic.name)
            self.run_in_background(self._await_stops(topic.name), "partition-stops")

    async def _await_stops(self, name: str) -> None:
        def stopped() -> bool:
            topic = self.image.topics.get(name)
            return topic is None or self.dispatcher.is_stopped(name, topic.pending_removal)

        await self.dispatcher.until(stopped)
        self.queue.post(PartitionsStopped(name), current_cause())

    @PartitionsStopped.handler
    async def on_stopped(self, event: PartitionsStopped) -> None:
        """Delete the nodes of partitions that no live broker hosts any more."""
        self._stopping.discard(event.topic)
        topic = self.image.topics.get(event.topic)
        if topic is None or topic.deleting or not topic.pending_removal:
            return
        if not self.dispatcher.is_stopped(topic.name, topic.pending_removal):  # a broker came back
            self._begin_removal(topic, topic.pending_removal)
            return
        numbers = sorted(topic.pending_removal, reverse=True)
        room = max(1, self.writer.max_ops // _OPS_PER_REMOVAL - 1)
        try:
            for start in range(0, len(numbers), room):
                await self._remove(topic, numbers[start : start + room])
        except MultiFailed as failure:  # The next reconciliation resumes it.
            logger.warning("partitions not removed yet", topic=topic.name, error=str(failure))

    async def _remove(self, topic: TopicImage, numbers: Sequence[int]) -> None:
        """Delete partitions and all intents for them in one multi.

        The topic's node has to note an epoch above all of theirs, and a leader may have
        written its ISR until it stopped: read the states once more.
        """
        topic_partitions = [TopicPartition(topic.name, number) for number in numbers]
        self.publisher.apply_read(await self.store.read_states(topic_partitions))
        ops = [
            *await self._node_deletions(topic_partitions),
            *await self._removals.deletions(topic.name, numbers),
            *self.agent.intents.delete_ops(topic_partitions),
        ]
        after = {ASSIGNMENT: dict.fromkeys(numbers)}
        before = {ASSIGNMENT: {n: topic.partitions[n].replicas for n in numbers}}
        entry = self._entry("partitions_removed", topic, before=before, after=after)
        await self._publish(topic, assignment_without(topic, numbers), ops, entry)
        self.agent.removed(topic_partitions)
        self.dispatcher.forget(topic_partitions)
        self.dispatcher.send_metadata()

    async def _node_deletions(self, topic_partitions: Sequence[TopicPartition]) -> list[Op]:
        """Return the deletions of partitions' nodes and children; states at known versions."""
        parents = [znodes.partition_path(*topic_partition) for topic_partition in topic_partitions]
        ops: list[Op] = []
        for topic_partition, parent, children in zip(
            topic_partitions, parents, await self.store.children(parents), strict=True
        ):
            if children is None:
                continue
            partition = self.image.partition(topic_partition)
            version = partition.version if partition and partition.state else ANY_VERSION
            for child in children:
                path = f"{parent}/{child}"
                is_state = path == znodes.state_path(*topic_partition)
                ops.append(DeleteOp(path, version if is_state else ANY_VERSION))
            ops.append(DeleteOp(parent, ANY_VERSION))
        return ops
