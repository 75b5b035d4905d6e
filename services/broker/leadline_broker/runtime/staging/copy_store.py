"""What this broker keeps for the leaders that it follows: copies of what is staged with them."""

from __future__ import annotations

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


class StagedCopyStore:
    """Answers leaders about what is staged. Owned by the event loop.

    Every request raises InvalidRequest or StaleIncarnation where it is meant for another
    broker, UnknownPartition where there is no replica, FencedLeaderEpoch or
    UnknownLeaderEpoch where another leader is known, and keeping where none is yet.
    """

    def __init__(
        self, *, broker_state: BrokerState, replicas: ReplicaManager, staging: Staging
    ) -> None:
        self._broker_state = broker_state
        self._replicas = replicas
        self._staging = staging

    async def keep(self, request: KeepStagedRequest) -> StagedDone:
        """Keep an upload. Raises StagingFull, BodyTooLarge, StorageFailed too: nothing is kept."""
        partition = self._hosted(request)
        require_follower(partition.replica, request.leader, request.leader_epoch)
        await self._staging.keep(partition.key, request.staged_id, request.records)
        return StagedDone()

    async def drop(self, request: DropStagedRequest) -> StagedDone:
        """Let go of uploads, those that are here."""
        partition = self._hosted(request)
        require_current(partition.replica.state, request.leader, request.leader_epoch)
        self._staging.discard(partition.key, request.staged_ids)
        return StagedDone()

    async def read(self, request: ReadStagedRequest) -> StagedRecords:
        """Return an upload. Raises UnknownStaged and StorageFailed too."""
        partition = self._hosted(request)
        require_current(partition.replica.state, request.leader, request.leader_epoch)
        with self._staging.held(partition.key, [request.staged_id]):
            return StagedRecords(await self._staging.read(partition.key, request.staged_id))

    def _hosted(self, request: StagedRequest) -> Partition:
        self._broker_state.require_addressed(request.broker_id, request.incarnation)
        partition = self._replicas.find((request.topic_id, request.partition))
        if partition is None:
            raise UnknownPartition("there is no replica of that partition here")
        return partition
