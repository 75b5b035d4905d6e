"""The Protocols that the runtime uses: logs, the cluster store, other services.

The adapters implement them without importing them; `main` connects the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from enum import Enum
from pathlib import Path
from typing import Protocol

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrOutcome
from leadline_broker.domain.producers import ProducerStates
from leadline_broker.domain.state import (
    Addresses,
    Directories,
    LogView,
    PublishedState,
    ReplicaKey,
    TopicIdPartition,
)
from leadline_broker.runtime.staged_store import StagedStore
from leadline_broker.runtime.stored_batches import StoredBatches
from leadline_broker.runtime.unopened_logs import UnopenedLogs
from leadline_client.batch_header import Buffer
from leadline_client.errors import StorageFailed
from leadline_common.bulk_offsets import BulkAnswer, BulkQuestion, PartitionEnds
from leadline_common.group_polls import SyncAnswer, SyncRequest
from leadline_common.identity import InternalAddress, ServiceAddress
from leadline_common.routed_records import (
    RoutedAppend,
    RoutedAppended,
    RoutedData,
    RoutedOffsets,
    RoutedRead,
)
from leadline_common.rpc import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControllerRow,
    HeartbeatRequest,
    HeartbeatResponse,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from leadline_common.staged_copies import (
    DropStagedRequest,
    KeepStagedRequest,
    ReadStagedRequest,
    StagedDone,
    StagedRecords,
)
from leadline_common.znodes import BrokerRegistration


class Log(LogView, Protocol):
    """The records of one replica; only `flush` may be called outside the event loop's thread."""

    @property
    def directory(self) -> Path:
        """Its directory, which may not exist yet."""

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers as of the log end."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""

    def size_from(self, offset: int) -> int:
        """Return the bytes from `offset` to the end, rounded to index entries."""

    @property
    def failed(self) -> bool:
        """Whether a write or an fsync has failed; such a log refuses all use."""

    @property
    def lacks_records(self) -> bool:
        """Whether it has removed its records to restart, and could not restart (rule R17)."""

    @property
    def has_unsynced(self) -> bool:
        """Whether anything was written that is not fsynced yet."""

    def append(self, data: Buffer, *, crc_checked: bool = False) -> int:
        """Append stamped batches and return the new end; see `PartitionLog`."""

    def flush(self) -> int:
        """Fsync and return the durable end; thread-safe."""

    def begin_flush(self, on_flushed: Callable[[StorageFailed | None], None]) -> bool:
        """Start a flush that needs no thread, if that is possible now; return whether."""

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches from the one that holds `offset`, none past `end_offset`."""

    @property
    def batches(self) -> StoredBatches:
        """What checks and repairs the stored batches."""

    def learn_timestamps(self) -> bool:
        """Read a part of what lookups by time need; return whether there is more to read."""

    def batch_for_timestamp(self, timestamp: int, from_offset: int) -> bytes:
        """Return the first batch with a record at or after a time (ms), from an offset on."""

    def truncate_to(self, offset: int) -> int:
        """Truncate durably at a batch boundary at or before `offset`; return the new end."""

    def reset_to(self, offset: int, producers: ProducerStates) -> None:
        """Delete all records and restart at `offset`, with the producers before it, durably."""

    def roll_at(self, segment_bytes: int) -> None:
        """From now on, close a segment before it grows beyond `segment_bytes`."""

    def apply_retention(
        self, now_ms: int, retention_ms: int, retention_bytes: int, limit_offset: int
    ) -> int:
        """Delete some old closed segments below `limit_offset`; return the bytes."""

    def removal(self) -> Callable[[], None] | None:
        """Return the removal of files that have left the log, for any thread; None if none has."""


class LogStore(UnopenedLogs, Protocol):
    """All logs of this broker, on one disk."""

    def stored(self) -> Sequence[StoredReplica]:
        """Return the replicas found on disk at the start."""

    def take_opened(self) -> Sequence[StoredReplica]:
        """Return the replicas whose logs are open only now, or raise StorageFailed."""

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch that this broker has accepted (rules R1, R11)."""

    def open(self, topic: str, topic_id: str, partition: int) -> Log:
        """Return the log of a replica, empty if there is none yet.

        A log of another topic id under the same name becomes a stray first. If the replica's
        own log is a stray, it is restored.

        Raises:
            StorageFailed: the partition on disk could not be opened.

        """

    def to_stray(self, key: ReplicaKey) -> None:
        """Rename the log of an unexpected replica to a stray (rule R12)."""

    def delete(self, key: ReplicaKey) -> Callable[[], None]:
        """Delete a replica; return the removal of its files, which may run in any thread.

        Raises:
            StorageFailed: the deletion is `unfinished`; the next call goes on with it.

        """

    @property
    def unfinished(self) -> Set[ReplicaKey]:
        """The replicas that are not there any more, and whose deletions have failed so far."""

    @property
    def directory_id(self) -> str:
        """The id that was made with the log directory (rule R17)."""

    @property
    def directory_version(self) -> int:
        """The version of the log directory; lower than ZooKeeper's in an older copy (rule R17)."""

    def persist_directory_version(self, version: int) -> None:
        """Store a higher version of the log directory durably, or raise StorageFailed."""

    def renew_directory_id(self) -> None:
        """Give the log directory and its replicas another id durably, or raise StorageFailed."""

    def own_directory_ids(self) -> Mapping[ReplicaKey, str]:
        """Return the directory ids of the replicas whose logs were lost within the directory."""

    def forget_lost(self, assigned: Collection[ReplicaKey]) -> None:
        """Forget lost logs of replicas that are not assigned to this broker any more.

        Raises:
            StorageFailed: the disk failed.

        """

    def persist_controller_epoch(self, epoch: int) -> None:
        """Store the highest accepted controller epoch; durable when this returns.

        Raises:
            StorageFailed: the write failed; a command of that epoch must not be executed.

        """

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[ReplicaKey, int]) -> None:
        """Write all high watermarks; thread-safe.

        Raises:
            StorageFailed: the write failed; the previous checkpoint stays.

        """

    def limit_open_files(self, count: int) -> None:
        """Keep at most `count` files open."""

    @property
    def staged(self) -> StagedStore:
        """The staged uploads."""

    def space(self) -> tuple[int, int]:
        """Return the total and the free bytes of the disk; thread-safe."""

    def purge_strays(self, now_ms: int, grace_ms: int) -> list[str]:
        """Delete the strays older than the grace time; return their names."""

    def close(self, incarnation: int) -> bool:
        """Close all logs; return whether the shutdown was clean, which leaves a marker."""

    @property
    def closed(self) -> int:
        """How many logs `close` has closed so far."""


StoredReplica = tuple[str, str, int, Log, int]
"""Topic, topic id, partition, log, checkpointed high watermark of a replica found on disk."""


class Registration(Enum):
    """The state of this session's registration."""

    OURS = "ours"
    GONE = "gone"
    REPLACED = "another's"


class ClusterStore(Protocol):
    """ZooKeeper as this broker uses it. Methods may raise `ZkError`."""

    def is_connected(self) -> bool:
        """Return whether the session is connected to a server."""

    def lease_valid(self) -> bool:
        """Return whether this broker may still act as a leader (rule R10)."""

    def lease_left_ms(self) -> float:
        """Return the remaining time of the lease; negative once it has expired."""

    async def connect(self, on_lost: Callable[[], None], on_hint: Callable[[], None]) -> None:
        """Start a new session.

        `on_lost()` is called once when it ends, `on_hint()` when something watched may have
        changed.
        """

    async def cluster_id(self) -> str:
        """Return the cluster's id; wait until the first controller has written it."""

    async def register(
        self,
        addresses: Addresses,
        rack: str | None,
        settings: Mapping[str, str],
        directories: Directories,
    ) -> BrokerRegistration:
        """Register this broker in a new incarnation (rule R9); return what is registered.

        `settings` are those set explicitly at start; others read them from the registration.
        """

    async def directory_version(self, directory_id: str) -> int:
        """Return the version of a log directory of this broker, 0 if none was ever written."""

    async def raise_directory_version(self, directory_id: str, version: int) -> None:
        """Write the version of a log directory, which has it durably (rule R17)."""

    async def registration(self) -> str:
        """Return the value of a `Registration`, and watch the registration."""

    async def configs(self, on_hint: Callable[[], None]) -> tuple[bytes | None, bytes | None]:
        """Return the dynamic settings of this broker and of the cluster, None if never set.

        `on_hint()` is called when they may have changed.
        """

    async def elected_controller(self) -> tuple[int | None, int]:
        """Return the id of the active controller and its epoch, as ZooKeeper's leader has them.

        The id is -1 if there is none, None if it is unreadable.
        """

    async def controller(self) -> ControllerRow | None:
        """Return the holder of `/controller` and watch it; the epoch, which it lacks, is 0."""

    async def coordinator(self, on_hint: Callable[[], None]) -> ControllerRow | None:
        """Return the holder of `/consumers/coordinator`.

        `on_hint()` is called when it may have changed.
        """

    async def write_isrs(
        self, changes: Sequence[tuple[TopicIdPartition, IsrProposal]]
    ) -> list[IsrOutcome]:
        """Write each change in a separate transaction; never raises `ZkError`."""

    async def read_states(
        self, partitions: Sequence[TopicIdPartition]
    ) -> Mapping[TopicIdPartition, PublishedState | None]:
        """Return the states by partition, None for one that is gone.

        States that cannot be decoded, which a person may have written, are omitted.
        """

    async def claim_producer_ids(self, count: int) -> int:
        """Reserve `count` numbers of producer ids, and return the first (rule R7 on ambiguity)."""

    async def producer_id_key(self) -> bytes | None:
        """Return the key of `domain.producer_ids`; None if no controller has made one yet."""

    async def close(self) -> None:
        """Close the session, which removes the registration."""


class Peers(Protocol):
    """Requests to other services.

    All raise LeadlineError: the error that the service returned, or ConnectionLost if there was
    no usable response, so that the outcome is unknown.
    """

    async def fetch(
        self, to: InternalAddress, request: ReplicaFetchRequest, timeout_ms: int
    ) -> ReplicaFetchResponse:
        """Fetch records from a leader."""

    async def heartbeat(
        self, to: InternalAddress, request: HeartbeatRequest, timeout_ms: int
    ) -> HeartbeatResponse:
        """Send a heartbeat to the controller."""

    async def controlled_shutdown(
        self, to: InternalAddress, request: ControlledShutdownRequest, timeout_ms: int
    ) -> ControlledShutdownResponse:
        """Ask the controller to move the leaders off this broker."""

    async def offsets(
        self, leader: ServiceAddress, question: BulkQuestion, timeout_ms: int
    ) -> BulkAnswer:
        """Ask a leader for the offsets of partitions."""

    async def keep_staged(
        self, to: InternalAddress, request: KeepStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Store a copy of a staged upload on a follower."""

    async def drop_staged(
        self, to: InternalAddress, request: DropStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Delete copies of staged uploads on a follower."""

    async def read_staged(
        self, to: InternalAddress, request: ReadStagedRequest, timeout_ms: int
    ) -> StagedRecords:
        """Read the copy of a staged upload from another replica."""

    async def append_routed(
        self, to: InternalAddress, request: RoutedAppend, timeout_ms: int
    ) -> RoutedAppended:
        """Pass an append on to a leader; LeaderNotAvailable if it cannot have received it."""

    async def read_routed(
        self, to: InternalAddress, request: RoutedRead, timeout_ms: int
    ) -> RoutedData:
        """Pass a read on to a leader, or to an in-sync replica."""

    async def offsets_routed(
        self, to: InternalAddress, request: RoutedOffsets, timeout_ms: int
    ) -> PartitionEnds:
        """Pass a lookup of offsets on to a leader."""

    async def sync_consumer(
        self, to: ServiceAddress, group: str, member: str, request: SyncRequest, timeout_ms: int
    ) -> SyncAnswer:
        """Synchronize a polling consumer with its group, on behalf of the client.

        Raises:
            CoordinatorNotAvailable: the coordinator cannot have received the request.

        """

    async def close(self) -> None:
        """Close all connections."""
