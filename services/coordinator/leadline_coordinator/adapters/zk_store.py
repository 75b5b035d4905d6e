"""The coordinator's door to ZooKeeper: its context, topics, groups, offsets.

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
from leadline_common.leader_election import ElectionNodes, ElectionStore, LeadershipTerm
from leadline_common.znodes import AuditEntry
from leadline_coordinator.adapters.group_nodes import GroupNodes
from leadline_coordinator.domain.records import (
    Committed,
    GroupRecord,
    Partition,
    StoredGroup,
    TopicFacts,
)

_log = logging.getLogger(__name__)
_Wake = Callable[[], None]


def _identity(data: bytes) -> tuple[int, str]:
    registration = nodes.decode(data, nodes.CoordinatorRegistration)
    return registration.id, registration.url


_ELECTION = ElectionNodes(nodes.COORDINATOR, nodes.COORDINATOR_EPOCH, _identity)


class ZkCoordinatorStore(ElectionStore):
    """ZooKeeper over one session; see `runtime.ports.CoordinatorStore`. `start` it first."""

    def __init__(self) -> None:
        super().__init__(_ELECTION)
        self._groups = GroupNodes(self._session)

    async def prepare(self) -> None:
        """Create the nodes that must exist."""
        paths = (znodes.TOPICS, znodes.DELETE_TOPICS, znodes.BROKER_IDS, znodes.AUDIT)
        for path in (nodes.GROUPS, *paths):
            await self._session.ensure_path(path)
        await self.create_epoch_node()

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

    async def record(self, term: LeadershipTerm, group: GroupRecord) -> None:
        """Write what differs from what was written last, the group itself at last."""
        await self._groups.record(term, group)

    async def write_offsets(
        self,
        term: LeadershipTerm,
        group: str,
        offsets: Mapping[Partition, Committed],
        topic_ids: Mapping[str, str],
        told: Sequence[AuditEntry] = (),
    ) -> None:
        """Write committed offsets."""
        await self._groups.write_offsets(term, group, offsets, topic_ids, told)

    async def delete_offsets(
        self,
        term: LeadershipTerm,
        group: str,
        partitions: Collection[Partition],
        told: Sequence[AuditEntry] = (),
    ) -> None:
        """Delete committed offsets."""
        await self._groups.delete_offsets(term, group, partitions, told)

    async def delete_group(
        self, term: LeadershipTerm, group: str, told: Sequence[AuditEntry] = ()
    ) -> None:
        """Delete a group with all that is recorded of it."""
        await self._groups.delete_group(term, group, told)

    async def tell(self, term: LeadershipTerm, entry: AuditEntry) -> None:
        """Write an audit entry alone."""
        await self._groups.tell(term, entry)
