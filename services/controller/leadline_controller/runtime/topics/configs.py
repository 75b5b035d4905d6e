"""Handlers of config changes, requested or written directly into ZooKeeper.

A change is one multi with its audit entry, conditional on the version that was read
for it. The controller applies it at once. Brokers receive a topic's configs with its
rows, and read those of the cluster and their own in ZooKeeper themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import structlog

from leadline_client.errors import StaleVersion
from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common import znodes
from leadline_common.access.caller import current_actor
from leadline_common.settings import accept_node, alter_configs
from leadline_common.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode
from leadline_common.zk.ops import CreateOp, Op, SetOp
from leadline_common.znode_json import node_number
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.cluster import NO_NODE, ClusterImage, ConfigsSet
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.dynamic_configs import (
    CLUSTER,
    AlterConfigs,
    AlterConfigsResult,
    ConfigResource,
    ConfigsChanged,
    DynamicConfigs,
)
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import Reply
from leadline_controller.runtime.engine.external_changes import ExternalChanges
from leadline_controller.runtime.engine.guard import require_etag
from leadline_controller.runtime.engine.publishing import AuditLog, StatePublisher
from leadline_controller.runtime.engine.state_writer import MAX_ATTEMPTS, StateWriter
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)


@dataclass(eq=False)
class ConfigManager(EventHandler):
    """Handles config changes; `configs` holds the configs in force."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    configs: DynamicConfigs
    writer: StateWriter
    publisher: StatePublisher
    dispatcher: BrokerDispatcher
    audit: AuditLog
    external: ExternalChanges
    _is_loaded: bool = field(default=False, init=False)

    async def load(self) -> bool:
        """Read and apply the configs; return whether settings in force changed."""
        nodes = await self.store.read_configs(self._read_again)
        named = {_resource(path): node for path, node in nodes.items()}
        found = {resource: node for resource, node in named.items() if resource is not None}
        if self._is_loaded:
            await self._record_external(found)
        self._is_loaded = True
        return self.configs.apply_all(found)

    async def _record_external(self, found: Mapping[ConfigResource, ReadNode]) -> None:
        """Record the configs that others have written or deleted."""
        for resource, node in found.items():
            before = self.configs.accepted(resource).values
            after = accept_node(resource.level, node.data, before).values
            if node.version != self.configs.version(resource) and before != after:
                await self.external.record_configs(resource.audited, before, after, node.zxid)
        for resource in self.configs.known() - found.keys():
            before = self.configs.accepted(resource).values
            if before:
                await self.external.record_configs(resource.audited, before, {}, 0)

    @ConfigsChanged.handler
    async def reconcile(self) -> None:
        """Read and apply the configs (rule R8)."""
        if await self.load():
            logger.info("cluster configs changed in ZooKeeper")
            await self._elect_unclean(self.image.topics)

    def _read_again(self) -> None:
        self.queue.trigger(ConfigsChanged)

    # -- requests --------------------------------------------------------------

    @AlterConfigs.handler
    async def on_alter(self, event: AlterConfigs, reply: Reply[AlterConfigsResult]) -> None:
        """Set and remove configs of one resource, all or none.

        Raises:
            Refused: there is no such topic or broker, or a config is invalid; nothing was
                written.
            StaleVersion: others keep writing the same configs.

        """
        resource = event.target
        self.configs.find(resource)
        for _ in range(MAX_ATTEMPTS):
            (node,) = await self.store.read_nodes([resource.path])
            altered = self._alter(event, node)
            self._check_etag(resource, altered)
            if event.dry_run or altered.after == altered.before:
                reply.settle(altered)
                return
            try:
                await self._write(resource, node, altered)
            except MultiFailed as failure:
                if not isinstance(failure.error, BadVersion | NodeExists | NoNode):
                    raise
            else:
                version = altered.version + 1
                etag = self.configs.etag(resource, version)
                reply.settle(altered._replace(version=version, etag=etag))
                is_topic = resource.level == "topic"
                await self._elect_unclean([resource.name] if is_topic else self.image.topics)
                return
        raise StaleVersion(f"{resource.path} is being written by others; nothing was changed")

    def _alter(self, event: AlterConfigs, node: ReadNode | None) -> AlterConfigsResult:
        version, data = (NO_NODE, b"") if node is None else (node.version, node.data)
        try:
            before: Mapping[str, str] = znodes.decode_configs(data)
        except (msgspec.MsgspecError, AttributeError):  # An unreadable node is replaced.
            before = {}
        after = alter_configs(event.target.level, before, event.configs, event.remove)
        etag = self.configs.etag(event.target, version)
        return AlterConfigsResult(before, after, version, etag)

    def _check_etag(self, resource: ConfigResource, altered: AlterConfigsResult) -> None:
        """Refuse to overwrite a change in ZooKeeper that the controller has not seen yet.

        The condition was checked before, but against the configs known then.
        """
        require_etag(self.writer.guard, altered.etag, resource.path)

    async def _write(
        self, resource: ConfigResource, node: ReadNode | None, altered: AlterConfigsResult
    ) -> None:
        """Write configs with their audit entry, and apply them."""
        data = znodes.replace_configs(node.data if node else b"", altered.after)
        path, version = resource.path, altered.version
        op: Op = CreateOp(path, data) if node is None else SetOp(path, data, version)
        await self.writer.commit([op], self._entry(resource, altered))
        if resource.level == "topic":
            accepted = accept_node("topic", data)
            change = ConfigsSet(
                resource.name, accepted.values, 0, altered.version + 1, accepted.problems
            )
            if self.image.apply([change]):
                self.dispatcher.send_metadata()
        else:
            self.configs.apply_written(resource, data, altered.version + 1)

    def _entry(self, resource: ConfigResource, altered: AlterConfigsResult) -> AuditEntry:
        audited = dict(resource.audited)
        if resource.level == "topic":
            audited["topic_id"] = self.image.topics[resource.name].topic_id
        return self.audit.entry(
            "configs_changed",
            audited,
            actor=current_actor(),
            before=altered.before,
            after=altered.after,
            zk={resource.path: altered.version + 1},
        )

    async def _elect_unclean(self, topics: Iterable[str]) -> None:
        """Elect leaders for leaderless partitions of topics that allow unclean election."""
        topic_partitions = [
            TopicPartition(name, number)
            for name in topics
            if self.image.unclean_allowed(self.image.topics[name])
            for number, partition in self.image.topics[name].partitions.items()
            if partition.state is not None and partition.state.leader == NO_LEADER
        ]
        reason = "unclean election: committed records that only the old ISR holds may be lost"
        decisions = self.publisher.decide(topic_partitions)
        await self.publisher.write(decisions, "unclean_election_enabled", reason)


def _resource(path: str) -> ConfigResource | None:
    """Return the resource of a config node; None if the name is no broker id."""
    if path == znodes.CONFIG_CLUSTER:
        return CLUSTER
    name = path.rpartition("/")[2]
    return ConfigResource("broker", name) if node_number(name) is not None else None
