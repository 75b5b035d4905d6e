"""The dynamic configs in force at this controller, and their events.

Code that needs a setting which can change reads `configs.current()` at each use and
never keeps the result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from leadline_client.errors import NotFound
from leadline_common import znodes
from leadline_common.settings import (
    Accepted,
    ControllerSettings,
    Layers,
    Level,
    accept_node,
    in_force,
    stated,
)
from leadline_controller.domain.cluster import NO_NODE, ClusterImage, ClusterPolicy
from leadline_controller.domain.state import ReadNode
from leadline_controller.domain.topics import find_topic
from leadline_controller.runtime.engine.events import DryRunRequest, Trigger

logger = structlog.get_logger(__name__)
_NONE = Accepted({}, {})


class ConfigResource(NamedTuple):
    """The owner of configs: a topic by name, a broker by id, or the cluster."""

    level: Level
    name: str = ""

    @property
    def path(self) -> str:
        """The znode of the configs."""
        match self.level:
            case "topic":
                return znodes.topic_config_path(self.name)
            case "broker":
                return znodes.broker_config_path(int(self.name))
            case "cluster":
                return znodes.CONFIG_CLUSTER

    @property
    def audited(self) -> Mapping[str, Any]:
        """The resource of audit entries about these configs."""
        match self.level:
            case "topic":
                return {"topic": self.name}
            case "broker":
                return {"broker": int(self.name)}
            case "cluster":
                return {"config": self.level}


CLUSTER = ConfigResource("cluster")


class AlterConfigsResult(NamedTuple):
    """Configs before and after a request; `version` and `etag` are those in ZooKeeper now."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    version: int
    etag: str


class ConfigsChanged(Trigger):
    """The watch on the configs of the cluster or of a broker fired."""


@dataclass(frozen=True, slots=True)
class AlterConfigs(DryRunRequest[AlterConfigsResult]):
    """Set and remove configs of one resource, all or none."""

    target: ConfigResource
    configs: Mapping[str, Any]
    remove: tuple[str, ...]

    @property
    def resource(self) -> Mapping[str, Any]:
        """The owner of the configs."""
        return self.target.audited


class DynamicConfigs:
    """The configs of the cluster and of brokers, as last read or written in this term."""

    def __init__(self, static: ControllerSettings, image: ClusterImage) -> None:
        self._static = static
        self._image = image
        self._current = static
        self._accepted: dict[ConfigResource, Accepted] = {}
        self._versions: dict[ConfigResource, int] = {}
        self._listeners: list[Callable[[], None]] = []
        self._changed = asyncio.Event()

    def current(self) -> ControllerSettings:
        """Return the settings in force now."""
        return self._current

    def accepted(self, resource: ConfigResource) -> Accepted:
        """Return the configs of a resource, and the problems found in them."""
        if resource.level == "topic":
            topic = self._image.topics[resource.name]
            return Accepted(topic.configs, topic.config_problems)
        return self._accepted.get(resource, _NONE)

    def known(self) -> frozenset[ConfigResource]:
        """Return the cluster and the brokers that have configs of their own."""
        return frozenset(self._accepted)

    def version(self, resource: ConfigResource) -> int:
        """Return the version of the znode of a resource's configs, or `NO_NODE`."""
        if resource.level == "topic":
            return self._image.topics[resource.name].configs_version
        return self._versions.get(resource, NO_NODE)

    def etag(self, resource: ConfigResource, version: int) -> str:
        """Return the ETag of one version of a resource's own configs."""
        if resource.level == "topic":
            return f'"{self._image.topics[resource.name].topic_id}-{version}"'
        return f'"{version}"'

    def find(self, resource: ConfigResource) -> None:
        """Refuse a resource that does not exist.

        A broker exists if it is live, hosts replicas or has configs.

        Raises:
            UnknownTopic: there is no such topic.
            NotFound: no such broker is known.

        """
        image = self._image
        if resource.level == "topic":
            find_topic(image, resource.name)
        elif resource.level == "broker":
            broker_id = int(resource.name)
            known = broker_id in image.brokers or image.hosted_by(broker_id)
            if not known and resource not in self._accepted:
                raise NotFound(f"no broker {broker_id} is known")

    def layers(self, resource: ConfigResource) -> Layers:
        """Return all layers that the configs of a resource are resolved from.

        Brokers may have been started with different settings. Unless `resource` is a broker,
        the live broker with the lowest id stands for all of them.
        """
        static = stated(self._static)
        brokers = self._image.brokers
        cluster = self.accepted(CLUSTER).values
        if resource.level == "broker":
            known = brokers.get(int(resource.name))
            own = self.accepted(resource).values
            return Layers(broker=own, cluster=cluster, static=known.settings if known else {})
        if brokers:
            static = {**brokers[min(brokers)].settings, **static}
        topic = self.accepted(resource).values if resource.level == "topic" else {}
        return Layers(topic=topic, cluster=cluster, static=static)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the settings in force have changed."""
        self._listeners.append(listener)

    async def changed(self, within_s: float) -> None:
        """Wait until the settings in force change, at most `within_s` seconds."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()

    # -- called by the handler of configs --------------------------------------

    def apply_all(self, nodes: Mapping[ConfigResource, ReadNode]) -> bool:
        """Apply the znodes of the cluster and of all brokers; return whether settings changed."""
        for resource in self._accepted.keys() - nodes.keys():
            del self._accepted[resource], self._versions[resource]
        for resource, node in nodes.items():
            self._accept(resource, node.data, node.version)
        return self._resolve()

    def apply_written(self, resource: ConfigResource, data: bytes, version: int) -> bool:
        """Apply a znode that was written; return whether settings changed."""
        self._accept(resource, data, version)
        return self._resolve()

    def _accept(self, resource: ConfigResource, data: bytes, version: int) -> None:
        """Keep the valid configs of a znode, and log new problems in it once."""
        known = self._accepted.get(resource, _NONE)
        accepted = accept_node(resource.level, data, known.values)
        if accepted.problems and accepted.problems != known.problems:
            logger.error("invalid configs", path=resource.path, problems=dict(accepted.problems))
        self._accepted[resource], self._versions[resource] = accepted, version

    def _resolve(self) -> bool:
        current = in_force(self._static, self.accepted(CLUSTER).values)
        self._image.policy = ClusterPolicy(
            current.min_insync_replicas, current.unclean_leader_election_enable
        )
        if current == self._current:
            return False
        self._current = current
        self._changed.set()
        for listener in self._listeners:
            listener()
        return True
