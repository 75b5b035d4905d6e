"""The copies of other brokers' staged uploads on this broker.

Their leaders create, read and delete them; see `domain.staged_copies`.
"""

from __future__ import annotations

from dataclasses import dataclass

from leadline_broker.domain.staged_copies import require_current, require_follower
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.staging.staging import Staging
from leadline_client.errors import UnknownPartition
from leadline_common.staged_copies import (
    DropStagedRequest,
    KeepStagedRequest,
    ReadStagedRequest,
    StagedDone,
    StagedRecords,
    StagedRequest,
)


@dataclass(eq=False, kw_only=True)
class StagedCopyStore:
    """Handles leaders' requests about copies on this broker. Owned by the event loop.

    Every request raises InvalidRequest or StaleIncarnation if it is addressed to another
    broker, UnknownPartition if there is no replica, FencedLeaderEpoch or UnknownLeaderEpoch
    if this broker knows another leader; `keep` also raises if it does not know the leader yet.
    """

    broker_state: BrokerState
    replicas: ReplicaManager
    staging: Staging

    async def keep(self, request: KeepStagedRequest) -> StagedDone:
        """Store a copy. Also raises StagingFull, BodyTooLarge, StorageFailed: nothing is stored."""
        partition = self._hosted(request)
        require_follower(partition.replica, request.leader, request.leader_epoch)
        await self.staging.keep(partition.key, request.staged_id, request.records)
        return StagedDone()

    async def drop(self, request: DropStagedRequest) -> StagedDone:
        """Delete those of the copies that exist."""
        partition = self._hosted(request)
        require_current(partition.replica.state, request.leader, request.leader_epoch)
        self.staging.discard(partition.key, request.staged_ids)
        return StagedDone()

    async def read(self, request: ReadStagedRequest) -> StagedRecords:
        """Return a copy. Also raises UnknownStaged and StorageFailed."""
        partition = self._hosted(request)
        require_current(partition.replica.state, request.leader, request.leader_epoch)
        with self.staging.pinned(partition.key, [request.staged_id]) as [upload]:
            return StagedRecords(await self.staging.read(partition.key, upload))

    def _hosted(self, request: StagedRequest) -> Partition:
        self.broker_state.require_addressed(request.broker_id, request.incarnation)
        partition = self.replicas.find((request.topic_id, request.partition))
        if partition is None:
            raise UnknownPartition("this broker has no replica of the partition")
        return partition
