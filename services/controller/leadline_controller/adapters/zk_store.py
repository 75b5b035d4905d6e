"""The controller's ZooKeeper adapter: reads, conditional writes and watches.

A node that cannot be decoded, because an operator wrote an invalid value, is logged and
treated as absent; it never stops the controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

import msgspec
import structlog

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes, znodes
from leadline_common.cluster_id import RESTORING, UnfinishedRestore, decode_cluster_id
from leadline_common.election_store import ElectionNodes, ElectionStore
from leadline_common.names import is_topic_name
from leadline_common.settings import Accepted, accept_node
from leadline_common.slices import slices
from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.client import READ_BATCH
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import NodeExists, NoNode, NotPermitted
from leadline_common.zk.ops import MultiResults, Op, Stat
from leadline_common.zk.ports import OpenTransport
from leadline_common.zk.restriction import restrict_namespace
from leadline_common.zk.transport import KazooTransport
from leadline_common.znode_json import node_number
from leadline_common.znodes import PartitionState
from leadline_controller.adapters.outbox import ZkOutbox
from leadline_controller.domain.cluster import BrokerUp, Change, ConfigsSet, StateSet, TopicSet
from leadline_controller.domain.state import LiveBrokers, ReadNode, Tombstone

logger = structlog.get_logger(__name__)
_KEY_BYTES: Final = 32
_TOPICS_AT_ONCE: Final = 50
"""Decoding so many of a hundred partitions each takes 5 ms."""
_STATES_AT_ONCE: Final = 5_000
_Node: TypeAlias = tuple[bytes, Stat]
_Value = TypeVar("_Value")
_Wake = Callable[[], None]


def _identity(data: bytes) -> tuple[int, str, str]:
    registration = znodes.decode_controller(data)
    return registration.id, registration.url, registration.internal_url


_ELECTION = ElectionNodes(znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, _identity)


class ControllerZkStore(ElectionStore):
    """Implements `runtime.ports.ControllerStore` on one session; call `start` first."""

    def __init__(
        self,
        credentials: ZkCredentials | None = None,
        open_transport: OpenTransport = KazooTransport,
    ) -> None:
        super().__init__(_ELECTION, credentials, open_transport)
        self.reads = 0
        self.writes = 0
        self._broker_watches: dict[int, _BrokerWatch] = {}

    async def prepare(self, cluster_id: str) -> str:
        """Create what must exist before all else, and return the cluster's id.

        With credentials, only their users may use nodes from then on. It includes what is right
        below the root and belongs to others, who may not create it there.

        Raises:
            UnfinishedRestore: only a part of a backup is there yet.

        """
        if await self._session.exists(RESTORING) is not None:
            raise UnfinishedRestore("a backup is being restored: nothing can start before its end")
        await restrict_namespace(self._session)
        for path in (*znodes.PERSISTENT_PATHS, znodes.PRODUCER_ID_BLOCK, consumer_znodes.CONSUMERS):
            await self._session.ensure_path(path)
        await self.create_epoch_node()
        with contextlib.suppress(NodeExists):
            await self._session.create(znodes.PRODUCER_ID_KEY, secrets.token_bytes(_KEY_BYTES))
        with contextlib.suppress(NodeExists):
            await self._session.create(znodes.CLUSTER_ID, cluster_id.encode())
        data, _ = await self._session.get(znodes.CLUSTER_ID)
        return decode_cluster_id(data)

    # -- brokers ---------------------------------------------------------------

    async def live_brokers(self, wake: _Wake | None = None) -> LiveBrokers:
        """Read the live brokers; call `wake` when a broker registers or leaves."""
        self.reads += 1
        names = await self._session.get_children(znodes.BROKER_IDS, watch=wake)
        nodes = await self._get_many([f"{znodes.BROKER_IDS}/{name}" for name in names])
        UNREADABLE.retain(znodes.BROKER_IDS, names)
        brokers = {}
        zxid = 0
        for name, node in zip(names, nodes, strict=True):
            if node is None:
                continue
            registration = _decoded(znodes.decode_broker, node[0], f"{znodes.BROKER_IDS}/{name}")
            if registration is not None and str(registration.id) != name:
                UNREADABLE.add(f"{znodes.BROKER_IDS}/{name}", f"it names {registration.id}")
            elif registration is not None:
                brokers[registration.id] = BrokerUp(registration, node[1].czxid)
                zxid = max(zxid, node[1].czxid)
        return LiveBrokers(brokers, zxid)

    async def watch_broker(self, broker_id: int, wake: _Wake) -> bool:
        """Call `wake` when a registration is deleted; return False if it is already gone."""
        self.reads += 1
        watch = self._broker_watches.setdefault(broker_id, _BrokerWatch(wake))
        watch.wake = wake
        path = znodes.broker_id_path(broker_id)
        return await self._session.exists(path, watch=watch) is not None

    async def brokers_ever(self) -> frozenset[int]:
        """Return the ids of all brokers that ever registered.

        A broker makes its node first, and writes it when it registers; so does a restore.
        """
        self.reads += 1
        names = await self._session.get_children(znodes.BROKER_EPOCHS)
        ids = [number for name in names if (number := node_number(name)) is not None]
        nodes = await self._get_many([znodes.broker_epoch_path(number) for number in ids])
        known = zip(ids, nodes, strict=True)
        return frozenset(
            number for number, node in known if node is not None and (node[0] or node[1].version)
        )

    # -- topics ----------------------------------------------------------------

    async def topic_names(self, wake: _Wake | None = None) -> list[str]:
        """Return the names of all topics; call `wake` when topics are created or deleted."""
        self.reads += 1
        names = await self._session.get_children(znodes.TOPICS, watch=wake)
        UNREADABLE.retain(znodes.TOPICS, names)
        for name in names:
            if not is_topic_name(name):
                UNREADABLE.add(znodes.topic_path(name), "this is not allowed as a topic's name")
        return [name for name in names if is_topic_name(name)]

    async def tombstones(self, wake: _Wake | None = None) -> list[Tombstone]:
        """Return all pending deletions; call `wake` when deletions are requested or completed."""
        self.reads += 1
        names = await self._session.get_children(znodes.DELETE_TOPICS, watch=wake)
        if not names:
            return []
        nodes = await self._get_many([znodes.delete_topic_path(name) for name in names])
        return [
            Tombstone(name, node[0].decode(errors="replace").strip(), node[1].czxid)
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        ]

    async def read_topics(
        self, names: Sequence[str], known: Mapping[str, int] | None = None
    ) -> list[Change]:
        """Read topic nodes and configs; skip topic nodes whose last zxid is in `known`."""
        known = known or {}
        topics, configs = await asyncio.gather(
            self._get_many([znodes.topic_path(name) for name in names]),
            self._get_many([znodes.topic_config_path(name) for name in names]),
        )
        changes: list[Change] = []
        async for some in slices(zip(names, topics, configs, strict=True), _TOPICS_AT_ONCE):
            for name, topic, config in some:
                if topic is not None:
                    changes += _topic_changes(name, topic, config, known.get(name))
        return changes

    async def read_states(
        self, topic_partitions: Sequence[TopicPartition], known: Sequence[int] | None = None
    ) -> list[StateSet]:
        """Read states; skip those whose version is the one at the same index in `known`."""
        paths = [znodes.state_path(topic, partition) for topic, partition in topic_partitions]
        states = []
        values: dict[bytes, PartitionState | None] = {}
        async for some in slices(enumerate(await self._get_many(paths)), _STATES_AT_ONCE):
            for index, node in some:
                if node is None:
                    continue
                data, stat = node
                if known is not None and known[index] == stat.version:
                    continue
                if data not in values:  # many states are equal: decode each value once
                    values[data] = _decoded(znodes.decode_state, data, paths[index])
                state = values[data]
                if state is not None:
                    topic, partition = topic_partitions[index]
                    states.append(StateSet(topic, partition, state, stat.version, stat.mzxid))
        return states

    async def read_configs(self, wake: _Wake) -> dict[str, ReadNode]:
        """Read the configs of the cluster and of brokers by path; call `wake` when one changes."""
        names = await self._session.get_children(znodes.CONFIG_BROKERS, watch=wake)
        paths = [znodes.CONFIG_CLUSTER, *(f"{znodes.CONFIG_BROKERS}/{name}" for name in names)]
        self.reads += 1 + len(paths)
        await asyncio.gather(*(self._session.exists(path, watch=wake) for path in paths))
        nodes = zip(paths, await self.read_nodes(paths), strict=True)
        return {path: node for path, node in nodes if node is not None}

    async def intents(self, root: str, wake: _Wake | None = None) -> dict[str, dict[str, bytes]]:
        """Read the intents below `root` by topic and name; call `wake` when they change."""
        self.reads += 1
        topics = await self._session.get_children(root, watch=wake)
        found: dict[str, dict[str, bytes]] = {}
        for topic in topics:
            self.reads += 1
            try:
                names = await self._session.get_children(f"{root}/{topic}", watch=wake)
            except NotPermitted as problem:
                UNREADABLE.add(f"{root}/{topic}", problem)
                continue
            except NoNode:
                continue
            nodes = await self._get_many([f"{root}/{topic}/{name}" for name in names])
            found[topic] = {
                name: node[0] for name, node in zip(names, nodes, strict=True) if node is not None
            }
        return found

    async def watched_node(self, path: str, wake: _Wake) -> ReadNode | None:
        """Read a node, or None if it does not exist; call `wake` when it changes."""
        self.reads += 1
        if await self._session.exists(path, watch=wake) is None:
            return None
        (found,) = await self.read_nodes([path])
        return found

    # -- any nodes -------------------------------------------------------------

    async def read_nodes(self, paths: Sequence[str]) -> list[ReadNode | None]:
        """Read nodes; the result has None for a node that does not exist."""
        nodes = await self._get_many(paths)
        return [
            None if node is None else ReadNode(node[0], node[1].version, node[1].mzxid)
            for node in nodes
        ]

    async def list_children(self, path: str, wake: _Wake) -> list[str] | None:
        """List the children of a node, None without the node; call `wake` when they change.

        A node that may not be read has none: who may write one order must not stop the others.
        """
        self.reads += 1
        try:
            return await self._session.get_children(path, watch=wake)
        except NotPermitted as problem:
            UNREADABLE.add(path, problem)
            return []
        except NoNode:
            return None

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """List the children of nodes; the result has None for a node that does not exist."""
        self.reads += _batches(paths)
        return await self._session.get_children_many(paths)

    @property
    def outbox(self) -> ZkOutbox:
        """The audit outbox."""
        return ZkOutbox(self._session)

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Send a multi; the multis of one store are applied in the order of submission."""
        self.writes += 1
        return super().submit(ops)

    async def _get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        self.reads += _batches(paths)
        return await self._session.get_many(paths)


@dataclass(eq=False, slots=True)
class _BrokerWatch:
    """The watch callback of one broker: reusing one object keeps a single watch per broker."""

    wake: _Wake

    def __call__(self) -> None:
        self.wake()


def _batches(paths: Sequence[str]) -> int:
    return -(-len(paths) // READ_BATCH)


def _topic_changes(
    name: str, topic: _Node, config: _Node | None, known_mzxid: int | None
) -> Iterator[Change]:
    """Yield what a topic's nodes say, leaving out a topic node that is known."""
    data, stat = topic
    if known_mzxid != stat.mzxid:
        assignment = _decoded(znodes.decode_topic, data, znodes.topic_path(name))
        if assignment is not None:
            yield TopicSet(name, assignment, stat.version, stat.mzxid)
    if config is None:
        yield ConfigsSet(name, {})
        return
    found, at = _accepted(config[0]), config[1]
    yield ConfigsSet(name, found.values, at.mzxid, at.version, found.problems)


@lru_cache
def _accepted(data: bytes) -> Accepted:
    """Validate a topic's configs and log the invalid ones; cached, because many are equal."""
    accepted = accept_node("topic", data)
    for problem in accepted.problems.values():
        logger.error("topic config invalid", reason=problem)
    return accepted


def _decoded(decode: Callable[[bytes], _Value], data: bytes, path: str) -> _Value | None:
    """Decode a node; note an invalid value and return None."""
    try:
        value = decode(data)
    except msgspec.MsgspecError as problem:
        UNREADABLE.add(path, problem)
        return None
    UNREADABLE.discard(path)
    return value
