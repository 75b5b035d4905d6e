"""What the active controller does when settings are changed, by a request or by hand.

A change is one multi with its audit entry, conditional on the version that was read
for it. It is in force here at once; brokers hear of a topic's settings in its rows,
and read those of the cluster and their own in ZooKeeper themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from leadline_client.errors import StaleVersion
from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common import znodes
from leadline_common.settings import accept_node, alter_configs
from leadline_common.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode
from leadline_common.zk.ops import CreateOp, Op, SetOp
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.cluster import NO_NODE, ConfigsSet
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.config_events import (
    CLUSTER,
    AlterConfigs,
    AlteredConfigs,
    ConfigResource,
    ConfigsChanged,
)
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import Why

_log = logging.getLogger(__name__)

MAX_ATTEMPTS = 8
"""How often a change is made anew because somebody else has written in between."""


class ConfigManager(EventHandler):
    """The handlers of dynamic settings; `desk.configs` holds them."""

    def __init__(self, desk: EventContext) -> None:
        self._desk = desk
        self._store = desk.office.store

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {ConfigsChanged: self.on_change, AlterConfigs: self.on_alter}

    async def load(self) -> None:
        """Read what is set, before anything is decided in this term."""
        await self._read()

    async def reconcile(self, event: events.Reconcile) -> None:
        """Read again what is set: watches may have been missed (rule R8)."""
        await self.on_change(event)

    async def on_change(self, event: ConfigsChanged | events.Reconcile) -> None:
        """Take in what was set by hand, and act on it."""
        if await self._read():
            _log.info("settings of the cluster have changed in ZooKeeper")
            await self._elect_where_allowed(self._desk.image.topics, event.cause)

    async def _read(self) -> bool:
        nodes = await self._store.read_configs(self._look_again)
        found = {_resource(path): node for path, node in nodes.items()}
        return self._desk.configs.take_in({r: node for r, node in found.items() if r is not None})

    def _look_again(self) -> None:
        self._desk.hint(ConfigsChanged)

    # -- requests --------------------------------------------------------------

    async def on_alter(self, event: AlterConfigs) -> None:
        """Set and remove settings of one level, all or none.

        Raises:
            Refused: there is no such topic or broker, or a setting may not be set so;
                nothing was written.
            StaleVersion: others keep writing the same settings.

        """
        resource = event.resource
        self._desk.configs.find(resource)
        for _ in range(MAX_ATTEMPTS):
            (node,) = await self._store.read_nodes([resource.path])
            altered = self._alter(event, node)
            self._check_seen(event, altered)
            if event.dry_run or altered.after == altered.before:
                event.settle(altered)
                return
            try:
                await self._write(resource, node, altered)
            except MultiFailed as failure:
                if not isinstance(failure.error, BadVersion | NodeExists | NoNode):
                    raise
            else:
                version = altered.version + 1
                etag = self._desk.configs.etag(resource, version)
                event.settle(altered._replace(version=version, etag=etag))
                await self._elect_where_allowed(self._touched(resource), event.cause)
                return
        raise StaleVersion(f"{resource.path} is being written by others; nothing was changed")

    def _alter(self, event: AlterConfigs, node: ReadNode | None) -> AlteredConfigs:
        """Return what a level's settings are, and will be by an operator's request."""
        version, data = (NO_NODE, b"") if node is None else (node.version, node.data)
        try:
            before: Mapping[str, str] = znodes.decode_configs(data)
        except (msgspec.MsgspecError, AttributeError):  # nobody can obey it: it is written anew
            before = {}
        after = alter_configs(event.resource.level, before, event.configs, event.remove)
        etag = self._desk.configs.etag(event.resource, version)
        return AlteredConfigs(before, after, version, etag)

    def _check_seen(self, event: AlterConfigs, altered: AlteredConfigs) -> None:
        """Refuse to overwrite what was written by hand since the caller looked.

        The engine has checked the condition with what it knew of.
        """
        condition = event.guard.condition if event.guard is not None else None
        if condition is None or condition.etags is None or altered.etag in condition.etags:
            return
        raise StaleVersion(
            f"{event.resource.path} was written by hand meanwhile; read it again before "
            "changing it",
            etag=altered.etag,
        )

    async def _write(
        self, resource: ConfigResource, node: ReadNode | None, altered: AlteredConfigs
    ) -> None:
        """Write settings with their audit entry, and take them in."""
        data = znodes.replace_configs(node.data if node else b"", altered.after)
        path, version = resource.path, altered.version
        op: Op = CreateOp(path, data) if node is None else SetOp(path, data, version)
        await self._desk.writer.commit([op], self._entry(resource, altered))
        if resource.level == "topic":
            accepted = accept_node("topic", data)
            change = ConfigsSet(
                resource.name, accepted.values, 0, altered.version + 1, accepted.problems
            )
            if self._desk.image.apply([change]):
                self._desk.delivery.metadata()
        else:
            self._desk.configs.take_in_one(resource, data, altered.version + 1)

    def _entry(self, resource: ConfigResource, altered: AlteredConfigs) -> AuditEntry:
        about = dict(resource.about)
        if resource.level == "topic":
            about["topic_id"] = self._desk.image.topics[resource.name].topic_id
        entry = self._desk.entry(
            "configs_changed",
            about,
            actor="operator",
            before=altered.before,
            after=altered.after,
        )
        return msgspec.structs.replace(entry, zk={resource.path: altered.version + 1})

    def _touched(self, resource: ConfigResource) -> Iterable[str]:
        return [resource.name] if resource.level == "topic" else self._desk.image.topics

    async def _elect_where_allowed(self, topics: Iterable[str], cause: str) -> None:
        """Give leaderless partitions a leader at once, where one outside the ISR may now lead."""
        image = self._desk.image
        names = [
            TopicPartition(name, number)
            for name in topics
            if image.unclean_allowed(image.topics[name])
            for number, partition in image.topics[name].partitions.items()
            if partition.state is not None and partition.state.leader == NO_LEADER
        ]
        reason = "unclean election: committed records that only the old ISR holds may be lost"
        why = Why(cause, self._desk.office.actor, "unclean_election_enabled", reason)
        await self._desk.write(self._desk.decide(names), why)


def _resource(path: str) -> ConfigResource | None:
    """Return whose settings a node has; None for one that an operator has misnamed."""
    if path == znodes.CONFIG_CLUSTER:
        return CLUSTER
    name = path.rpartition("/")[2]
    return ConfigResource("broker", str(int(name))) if name.isdecimal() else None
