"""The settings in force at this controller: what is set for the cluster, over what it was told.

Whoever needs a setting that can change asks for it at each use
(`desk.configs.current().reconcile_interval_ms`), and never keeps the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from leadline_client.errors import NotFound
from leadline_common.settings import (
    Accepted,
    ControllerSettings,
    Layers,
    accept_node,
    in_force,
    stated,
)
from leadline_controller.domain.cluster import NO_NODE, ClusterImage, ClusterPolicy
from leadline_controller.domain.state import ReadNode
from leadline_controller.domain.topics import find_topic
from leadline_controller.runtime.engine.config_events import CLUSTER, ConfigResource

_log = logging.getLogger(__name__)
_NONE = Accepted({}, {})


class DynamicConfigs:
    """What is set for the cluster and for brokers, as last read or written; one term's."""

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
        """Return what is set at a level, and what is wrong there."""
        if resource.level == "topic":
            topic = self._image.topics[resource.name]
            return Accepted(topic.configs, topic.config_problems)
        return self._accepted.get(resource, _NONE)

    def version(self, resource: ConfigResource) -> int:
        """Return the version of the node that a level's settings are kept in, or `NO_NODE`."""
        if resource.level == "topic":
            return self._image.topics[resource.name].configs_version
        return self._versions.get(resource, NO_NODE)

    def etag(self, resource: ConfigResource, version: int) -> str:
        """Return the ETag of a version of a level's settings; it names nothing of other levels."""
        if resource.level == "topic":
            return f'"{self._image.topics[resource.name].topic_id}-{version}"'
        return f'"{version}"'

    def find(self, resource: ConfigResource) -> None:
        """Refuse what is not there: a broker is, if it is live, hosts something or has settings.

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
        """Return all that a level's settings are chosen from.

        What brokers were told at their start may differ. Where the question is not
        about one of them, the live one with the lowest id speaks for all.
        """
        told = stated(self._static)
        brokers = self._image.brokers
        cluster = self.accepted(CLUSTER).values
        if resource.level == "broker":
            known = brokers.get(int(resource.name))
            own = self.accepted(resource).values
            return Layers(broker=own, cluster=cluster, static=known.settings if known else {})
        if brokers:
            told = {**brokers[min(brokers)].settings, **told}
        topic = self.accepted(resource).values if resource.level == "topic" else {}
        return Layers(topic=topic, cluster=cluster, static=told)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `listener` told whenever the settings in force have changed."""
        self._listeners.append(listener)

    async def changed(self, within_s: float) -> None:
        """Wait until the settings in force change, at most so long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- within one term's queue -----------------------------------------------

    def take_in(self, nodes: Mapping[ConfigResource, ReadNode]) -> bool:
        """Take in the nodes of the cluster and of all brokers; tell whether settings changed."""
        for resource in self._accepted.keys() - nodes.keys():
            del self._accepted[resource], self._versions[resource]
        for resource, node in nodes.items():
            self._note(resource, node.data, node.version)
        return self._apply()

    def take_in_one(self, resource: ConfigResource, data: bytes, version: int) -> bool:
        """Take in a node that was written; tell whether settings changed."""
        self._note(resource, data, version)
        return self._apply()

    def _note(self, resource: ConfigResource, data: bytes, version: int) -> None:
        """Note what a node says; what is wrong in it is complained of once."""
        known = self._accepted.get(resource, _NONE)
        accepted = accept_node(resource.level, data, known.values)
        if accepted.problems and accepted.problems != known.problems:
            _log.error("%s is not obeyed whole: %s", resource.path, dict(accepted.problems))
        self._accepted[resource], self._versions[resource] = accepted, version

    def _apply(self) -> bool:
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
