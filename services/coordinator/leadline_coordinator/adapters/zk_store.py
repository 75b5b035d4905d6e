"""The coordinator's door to ZooKeeper: its office, topics, groups, offsets.

Every write is a multi that checks the version of `/consumers/coordinator_epoch`: those
of a coordinator that was succeeded fail (R16). What cannot be decoded is logged and
treated as absent; it never stops the coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from leadline_common import consumer_znodes as nodes
from leadline_common import znodes
from leadline_common.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode
from leadline_common.zk.ops import CreateOp, Op, SetOp
from leadline_common.zk.session import ZkSession
from leadline_common.zk.transport import SessionState
from leadline_common.znodes import AuditEntry
from leadline_coordinator.adapters.group_nodes import GroupNodes
from leadline_coordinator.domain.records import (
    Committed,
    GroupRecord,
    Holder,
    Partition,
    StoredGroup,
    Term,
    TopicFacts,
)

_log = logging.getLogger(__name__)
_Wake = Callable[[], None]

_FIRST_EPOCH = b"0"


class ZkStore:
    """ZooKeeper over one session; see `runtime.ports.Store`. `start` it before anything else."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self._reconnected: _Wake = _ignore
        self._session = ZkSession(on_state=self._on_state, on_reconnected=self._on_reconnected)
        self._groups = GroupNodes(self._session)

    # -- life ------------------------------------------------------------------

    async def start(self, hosts: str, session_timeout_ms: int) -> None:
        """Open the session.

        Raises:
            NotConnected: no server answered.

        """
        await self._session.start(hosts, session_timeout_ms)

    async def close(self) -> None:
        """End the session, and with it the office where this session holds it."""
        await self._session.close()
        self.lost.set()

    @property
    def session_id(self) -> int:
        """The id of the session."""
        return self._session.session_id

    def is_connected(self) -> bool:
        """Tell whether a server is in touch."""
        return self._session.is_connected

    def lease_valid(self) -> bool:
        """Tell whether this process may still act (rule R10)."""
        return self._session.lease_valid()

    def on_reconnected(self, wake: _Wake) -> None:
        """Have `wake` told after each reconnection."""
        self._reconnected = wake

    def _on_reconnected(self) -> None:
        self._reconnected()

    def _on_state(self, state: SessionState) -> None:
        _log.info("ZooKeeper session %x is %s", self.session_id, state.name)
        if state is SessionState.LOST:
            self.lost.set()

    # -- office ----------------------------------------------------------------

    async def prepare(self) -> None:
        """Create what must exist before all else."""
        paths = (znodes.TOPICS, znodes.DELETE_TOPICS, znodes.BROKER_IDS, znodes.AUDIT)
        for path in (nodes.GROUPS, *paths):
            await self._session.ensure_path(path)
        try:
            await self._session.create(nodes.COORDINATOR_EPOCH, _FIRST_EPOCH)
        except NodeExists:
            return

    async def holder(self, wake: _Wake | None = None) -> Holder | None:
        """Return who is the coordinator, or None."""
        path = nodes.COORDINATOR
        if wake is not None and await self._session.exists(path, watch=wake) is None:
            return None
        try:
            data, stat = await self._session.get(path)
        except NoNode:
            return None
        try:
            found = nodes.decode(data, nodes.CoordinatorRegistration)
        except msgspec.MsgspecError as problem:
            _log.error("%s cannot be read: %s", path, problem)
            return Holder(-1, "", stat.ephemeral_owner)
        return Holder(found.id, found.url, stat.ephemeral_owner)

    async def claim(self, coordinator_id: int, url: str, wall_ms: int) -> Term | None:
        """Become the coordinator in one multi; None when another one is, or was faster."""
        term = await self.term()
        registration = nodes.CoordinatorRegistration(coordinator_id, url, wall_ms)
        ops: list[Op] = [
            CreateOp(nodes.COORDINATOR, nodes.encode(registration), ephemeral=True),
            SetOp(nodes.COORDINATOR_EPOCH, str(term.epoch + 1).encode(), term.epoch_version),
        ]
        try:
            await self._session.multi(ops)
        except MultiFailed as failure:
            if isinstance(failure.error, NodeExists | BadVersion):
                return None
            raise
        return Term(term.epoch + 1, term.epoch_version + 1)

    async def term(self) -> Term:
        """Read the present epoch.

        Every win adds one to a node that began with 0, so that its data version stands in
        for a value that somebody has spoilt.
        """
        data, stat = await self._session.get(nodes.COORDINATOR_EPOCH)
        try:
            epoch = int(data)
        except ValueError:
            _log.error("%s is no number: %r", nodes.COORDINATOR_EPOCH, data)
            epoch = stat.version
        return Term(epoch, stat.version)

    # -- topics ----------------------------------------------------------------

    async def topic_names(self, wake: _Wake | None = None) -> list[str]:
        """Return the names of all topics that are not being deleted."""
        names, deleted = await asyncio.gather(
            self._session.get_children(znodes.TOPICS, watch=wake),
            self._session.get_children(znodes.DELETE_TOPICS, watch=wake),
        )
        gone = set(deleted)
        return [name for name in names if name not in gone]

    async def read_topics(
        self, names: Sequence[str], watches: Mapping[str, _Wake]
    ) -> dict[str, TopicFacts]:
        """Read topics, and have those in `watches` told of the next change."""
        setting = (
            self._session.exists(znodes.topic_path(name), watch=watches[name])
            for name in names
            if name in watches
        )
        await asyncio.gather(*setting)
        found = await self._session.get_many([znodes.topic_path(name) for name in names])
        topics = {}
        for name, node in zip(names, found, strict=True):
            if node is None:
                continue
            try:
                topic = znodes.decode_topic(node[0])
            except msgspec.MsgspecError as problem:
                _log.error("%s cannot be read: %s", znodes.topic_path(name), problem)
                continue
            topics[name] = TopicFacts(topic.topic_id, len(topic.partitions))
        return topics

    async def brokers(self) -> list[str]:
        """Return the URLs of the live brokers."""
        names = await self._session.get_children(znodes.BROKER_IDS)
        found = await self._session.get_many([f"{znodes.BROKER_IDS}/{name}" for name in names])
        urls = []
        for name, node in zip(names, found, strict=True):
            if node is None:
                continue
            try:
                urls.append(znodes.decode_broker(node[0]).url)
            except msgspec.MsgspecError as problem:
                _log.error("%s/%s cannot be read: %s", znodes.BROKER_IDS, name, problem)
        return urls

    # -- groups ----------------------------------------------------------------

    async def load_groups(self) -> list[StoredGroup]:
        """Read all groups."""
        return await self._groups.load()

    async def record(self, term: Term, group: GroupRecord) -> None:
        """Write what differs from what was written last, the group itself at last."""
        await self._groups.record(term, group)

    async def write_offsets(
        self,
        term: Term,
        group: str,
        offsets: Mapping[Partition, Committed],
        topic_ids: Mapping[str, str],
        told: Sequence[AuditEntry] = (),
    ) -> None:
        """Write committed offsets."""
        await self._groups.write_offsets(term, group, offsets, topic_ids, told)

    async def delete_offsets(
        self,
        term: Term,
        group: str,
        partitions: Collection[Partition],
        told: Sequence[AuditEntry] = (),
    ) -> None:
        """Delete committed offsets."""
        await self._groups.delete_offsets(term, group, partitions, told)

    async def delete_group(self, term: Term, group: str, told: Sequence[AuditEntry] = ()) -> None:
        """Delete a group with all that is recorded of it."""
        await self._groups.delete_group(term, group, told)

    async def tell(self, term: Term, entry: AuditEntry) -> None:
        """Write an audit entry alone."""
        await self._groups.tell(term, entry)


def _ignore() -> None:
    """Stand in for an absent callback."""
