"""Handlers of topics that are created, or found in ZooKeeper (Replication V3, section B)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import structlog

from leadline_client.errors import PolicyViolation
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common import znodes
from leadline_common.access.caller import current_actor
from leadline_common.settings import check_configs
from leadline_common.zk.errors import MultiFailed, NodeExists, RequestTooLarge
from leadline_common.zk.ops import CreateOp, Op, SetOp, Stat
from leadline_common.znodes import AuditEntry, TopicAssignment
from leadline_controller.domain.cluster import (
    NO_NODE,
    ClusterImage,
    ConfigsSet,
    TopicImage,
    TopicSet,
)
from leadline_controller.domain.failover import on_topic_change
from leadline_controller.domain.history import ASSIGNMENT
from leadline_controller.domain.topics import (
    check_may_create,
    check_topic_name,
    plan_assignment,
)
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    DryRunRequest,
    Reply,
    Trigger,
)
from leadline_controller.runtime.engine.external_changes import ExternalChanges
from leadline_controller.runtime.engine.publishing import AuditLog, StatePublisher
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.topics.deletions import forget_topic
from leadline_controller.runtime.topics.partition_intents import PartitionIntentsChanged

logger = structlog.get_logger(__name__)

Assignment: TypeAlias = Mapping[int, tuple[int, ...]]
"""Partition number to replicas."""


class TopicsChanged(Trigger):
    """The watch on the list of topics fired."""


@dataclass(frozen=True, slots=True)
class CreateTopic(DryRunRequest[Assignment]):
    """Create a topic; answered with its replicas once the partition states are written."""

    new: NewTopic

    @property
    def resource(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.new.name}


@dataclass(eq=False)
class TopicManager(EventHandler):
    """Handles topics that are created, or found in ZooKeeper."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    configs: DynamicConfigs
    writer: StateWriter
    publisher: StatePublisher
    dispatcher: BrokerDispatcher
    audit: AuditLog
    external: ExternalChanges
    new_id: Callable[[], str]
    random_index: Callable[[int], int]
    charge_partitions: Callable[[int], None]

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
            self.charge_partitions(len(assignment))
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
        config_path = znodes.topic_config_path(name)
        # A topic whose node was deleted by hand may have left its configs behind.
        ops: list[Op] = [
            *await self.writer.deletions([config_path]),
            CreateOp(znodes.topic_path(name), znodes.encode_topic(assignment)),
            CreateOp(znodes.partitions_path(name)),
        ]
        if configs:
            ops.append(CreateOp(config_path, znodes.encode_configs(configs)))
        after = {ASSIGNMENT: assignment.partitions, "configs": configs}
        entry = self._entry("topic_created", name, assignment.topic_id, current_actor(), after)
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
            await self.external.record_gone(name)
            forget_topic(self.image, self.dispatcher, name)
        known = {t.name: t.zxid for t in self.image.topics.values()}
        wanted = names if everything else [name for name in names if name not in known]
        changes = await self.store.read_topics(wanted, known)
        await self.external.record_topics(changes)
        found = dict.fromkeys(c.topic for c in changes if isinstance(c, TopicSet))
        self.publisher.apply_topics(changes)
        # Those without an id include topics that were found at the election.
        found |= dict.fromkeys(t.name for t in self.image.topics.values() if not t.topic_id)
        if found:
            await self._initialise(list(found))

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
        states = await self.store.read_states(partitions)
        await self.external.record_states(states)
        self.publisher.apply_read(states)
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
        self.queue.trigger(PartitionIntentsChanged)  # Intents for the topic had to wait.

    def _read_again(self) -> None:
        self.queue.trigger(TopicsChanged)
