"""The coordinator's ZooKeeper session: its election, topics, brokers and groups.

What cannot be decoded is logged and treated as absent; it never stops the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from leadline_common import consumer_znodes as nodes
from leadline_common import znodes
from leadline_common.cluster_id import decode_cluster_id
from leadline_common.election_store import ElectionNodes, ElectionStore
from leadline_common.identity import ServiceAddress, ServiceIdentity
from leadline_common.zk.client import Callback
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import NoNode
from leadline_common.zk.ports import OpenTransport
from leadline_common.zk.transport import KazooTransport
from leadline_coordinator.adapters.group_nodes import GroupNodes
from leadline_coordinator.adapters.group_values import decoded
from leadline_coordinator.domain.records import TopicState

_Node = TypeVar("_Node")


def _identity(data: bytes) -> tuple[int, str, str]:
    registration = nodes.decode(data, nodes.CoordinatorRegistration)
    return registration.id, registration.url, registration.internal_url


_PREPARED_POLL_S: Final = 0.05
_ELECTION = ElectionNodes(nodes.COORDINATOR, nodes.COORDINATOR_EPOCH, _identity)


class ZkCoordinatorStore(ElectionStore):
    """ZooKeeper over one session; see `runtime.ports.CoordinatorStore`. `start` it first."""

    def __init__(
        self,
        credentials: ZkCredentials | None = None,
        open_transport: OpenTransport = KazooTransport,
    ) -> None:
        super().__init__(_ELECTION, credentials, open_transport)
        self.groups = GroupNodes(self._session)

    async def prepare(self) -> None:
        """Create the nodes that must exist; with credentials, wait for those of the controllers."""
        if self._session.credentials is not None:
            await self._controllers_nodes()
        paths = (znodes.TOPICS, znodes.DELETE_TOPICS, znodes.BROKER_IDS, znodes.AUDIT)
        for path in (nodes.GROUPS, *paths):
            await self._session.ensure_path(path)
        await self.create_epoch_node()

    async def _controllers_nodes(self) -> None:
        """Wait until a controller has created the nodes that a coordinator may not create."""
        while True:
            if await self.cluster_id():
                return
            await asyncio.sleep(_PREPARED_POLL_S)

    async def cluster_id(self) -> str:
        """Return the cluster's id, "" until the first controller has written it."""
        try:
            data, _ = await self._session.get(znodes.CLUSTER_ID)
        except NoNode:
            return ""
        return decode_cluster_id(data)

    async def topic_names(self, watch: Callback | None = None) -> list[str]:
        """Return the names of all topics that are not being deleted."""
        names, deleted = await asyncio.gather(
            self._session.get_children(znodes.TOPICS, watch=watch),
            self._session.get_children(znodes.DELETE_TOPICS, watch=watch),
        )
        gone = set(deleted)
        return [name for name in names if name not in gone]

    async def read_topics(
        self, names: Sequence[str], watches: Mapping[str, Callback]
    ) -> dict[str, TopicState]:
        """Read topics; call a topic's callback in `watches` once when it changes."""
        setting = (
            self._session.exists(znodes.topic_path(name), watch=watches[name])
            for name in names
            if name in watches
        )
        await asyncio.gather(*setting)
        found = await self._read_all(list(map(znodes.topic_path, names)), znodes.decode_topic)
        return {
            name: TopicState(topic.topic_id, len(topic.partitions), topic.first_epochs)
            for name, topic in zip(names, found, strict=True)
            if topic is not None
        }

    async def brokers(self) -> list[ServiceAddress]:
        """Return the addresses of the live brokers."""
        names = await self._session.get_children(znodes.BROKER_IDS)
        paths = [f"{znodes.BROKER_IDS}/{name}" for name in names]
        brokers = await self._read_all(paths, znodes.decode_broker)
        return [
            ServiceAddress(ServiceIdentity("broker", one.id), one.url, one.internal_url)
            for one in brokers
            if one is not None
        ]

    async def _read_all(
        self, paths: Sequence[str], decode: Callable[[bytes], _Node]
    ) -> list[_Node | None]:
        """Read nodes; None stands for each that is absent or unreadable."""
        found = await self._session.get_many(paths)
        return [
            None if node is None else decoded(decode, node[0], path)
            for path, node in zip(paths, found, strict=True)
        ]
