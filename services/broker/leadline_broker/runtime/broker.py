"""The broker as its HTTP API sees it: one object, on one event loop."""

from __future__ import annotations

from leadline_broker.runtime.metadata import MetadataCache
from leadline_broker.runtime.views import FetchedData, ReplicaInfo
from leadline_client.wire import Acks, PartitionOffsets, ProduceResult
from leadline_common.rpc import (
    CommandResponse,
    LeaderAndIsrRequest,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class Broker:
    """One broker: its replicas, its place in the cluster, and what it serves.

    Attributes:
        metadata: the cluster as the controller described it.

    """

    metadata: MetadataCache

    @property
    def broker_id(self) -> int:
        """The number of this broker."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """The address under which it is registered."""
        raise NotImplementedError

    @property
    def incarnation(self) -> int:
        """The registration in force (rule R9); -1 while there is none."""
        raise NotImplementedError

    @property
    def granted(self) -> bool:
        """Whether the controller has given this incarnation its full grant."""
        raise NotImplementedError

    async def produce(
        self,
        topic: str,
        partition: int,
        data: bytearray,
        *,
        acks: Acks,
        timeout_ms: int,
        leader_epoch: int | None = None,
    ) -> ProduceResult:
        """Append v2 batches, which are stamped in place, and wait as `acks` says."""
        raise NotImplementedError

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        leader_epoch: int | None = None,
    ) -> FetchedData:
        """Return committed batches from the one that holds `offset`."""
        raise NotImplementedError

    def offsets(self, topic: str, partition: int) -> PartitionOffsets:
        """Return the ends of a partition that this broker leads (OffsetNotAvailable: KIP-207)."""
        raise NotImplementedError

    def offset_for_timestamp(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first committed record at or after a time."""
        raise NotImplementedError

    def replicas(self) -> list[ReplicaInfo]:
        """Return every local replica, by topic and partition."""
        raise NotImplementedError

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> CommandResponse:
        """Take the roles that the controller grants."""
        raise NotImplementedError

    def stop_replica(self, request: StopReplicaRequest) -> CommandResponse:
        """Stop replicas, and delete their logs if told to."""
        raise NotImplementedError

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Take the cluster's metadata from the controller."""
        raise NotImplementedError

    async def replica_fetch(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        """Serve a follower."""
        raise NotImplementedError

    async def allocate_producer_id(self) -> tuple[int, int]:
        """Return a producer id that nobody else has, and its first epoch."""
        raise NotImplementedError

    def readiness(self) -> list[str]:
        """Return why this broker is not ready to serve; nothing when it is."""
        raise NotImplementedError
