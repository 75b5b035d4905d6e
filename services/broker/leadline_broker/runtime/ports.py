"""What the runtime needs of the outside: logs, the cluster store, other services.

The adapters fit these shapes without knowing them; `main` joins the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.producers import ProducerStates
from leadline_broker.domain.state import LogView, PublishedState
from leadline_client.batches import Buffer
from leadline_client.wire import ControllerInfo
from leadline_common.bulk_offsets import BulkAnswer, BulkQuestion
from leadline_common.rpc import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
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

ReplicaKey = tuple[str, int]
"""Topic id and partition: what a replica is known by (rule R1)."""


class Log(LogView, Protocol):
    """One replica's records; only `flush` may be called off the event loop's thread."""

    @property
    def directory(self) -> Path:
        """Where its files are, or will be."""

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers as of the log end."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""

    def size_from(self, offset: int) -> int:
        """Return the bytes from `offset` to the end, roughly."""

    @property
    def failed(self) -> bool:
        """Whether a write or an fsync failed; the log refuses all use then."""

    def append(self, data: Buffer, *, crc_checked: bool = False) -> int:
        """Append stamped batches and return the new end; see `PartitionLog`."""

    def flush(self) -> int:
        """Fsync and return the durable end; thread-safe."""

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches from the one that holds `offset`, none past `end_offset`."""

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a time (ms)."""

    def truncate_to(self, offset: int) -> int:
        """Cut at a batch boundary at or before `offset`, durably; return the new end."""

    def reset_to(self, offset: int) -> None:
        """Drop everything and begin anew at `offset`, durably."""

    def roll_at(self, segment_bytes: int) -> None:
        """Close segments before they would grow beyond `segment_bytes`, from now on."""

    def apply_retention(
        self, now_ms: int, retention_ms: int, retention_bytes: int, limit_offset: int
    ) -> int:
        """Delete old closed segments below `limit_offset`; return the bytes."""


class LogStore(Protocol):
    """All logs of this broker, on one disk."""

    def stored(self) -> Sequence[StoredReplica]:
        """Return what was found on disk at the start."""

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch ever obeyed (rules R1, R11)."""

    def open(self, topic: str, topic_id: str, partition: int) -> Log:
        """Return the log of a replica, empty if there is none yet.

        A log of another incarnation of the topic is moved to stray first; one
        that was moved to stray itself is brought back.
        """

    def to_stray(self, key: ReplicaKey) -> None:
        """Move a replica that should not be here aside (rule R12)."""

    def delete(self, key: ReplicaKey) -> Callable[[], None]:
        """Remove a replica for good; return the rest of the work, for any thread."""

    def persist_controller_epoch(self, epoch: int) -> None:
        """Remember the highest controller epoch; durable before it returns.

        Raises:
            StorageFailed: the disk refuses; nothing may be obeyed that came with it.

        """

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[ReplicaKey, int]) -> None:
        """Write all high watermarks; thread-safe.

        Raises:
            StorageFailed: the disk refuses; what was written before stays.

        """

    def limit_open_files(self, count: int) -> None:
        """Hold no more than so many files open."""

    @property
    def staged(self) -> StagedStore:
        """What waits beside the logs to be published."""

    def space(self) -> tuple[int, int]:
        """Return the bytes of the disk in all, and those that are free; thread-safe."""

    def purge_strays(self, now_ms: int, grace_ms: int) -> list[str]:
        """Delete the strays older than the grace time; return their names."""

    def close(self, incarnation: int) -> bool:
        """Close all logs, leaving the clean-shutdown marker if all went well."""


class StagedStore(Protocol):
    """Uploads that wait to be published, on disk; thread-safe.

    Methods may raise StorageFailed; what was not written then is not there.
    """

    def found(self) -> list[tuple[ReplicaKey, str, int, int]]:
        """Return (partition, id, bytes, when it was written in Unix ms) of each upload."""

    def write(self, key: ReplicaKey, staged_id: str, data: Buffer) -> None:
        """Keep an upload, as a whole or not at all."""

    def read(self, key: ReplicaKey, staged_id: str) -> bytes | None:
        """Return an upload, None where it is gone."""

    def remove(self, key: ReplicaKey, staged_ids: Iterable[str]) -> None:
        """Delete uploads."""

    def remove_all(self, key: ReplicaKey) -> None:
        """Delete everything that is staged for a partition."""


TopicIdPartition = tuple[str, str, int]
"""Topic, topic id, partition."""

StoredReplica = tuple[str, str, int, Log, int]
"""Topic, topic id, partition, log, checkpointed high watermark of a replica found on disk."""

IsrOutcome = tuple[IsrWriteResult, int]
"""How an ISR write ended, and the state node's new version if it was committed."""


class Registration(Enum):
    """What has become of this session's registration."""

    OURS = "ours"
    GONE = "gone"
    ANOTHERS = "another's"


class ClusterStore(Protocol):
    """ZooKeeper as this broker uses it. Methods may raise `ZkError`."""

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that the server granted."""

    def is_connected(self) -> bool:
        """Tell whether a server is in touch."""

    def lease_valid(self) -> bool:
        """Tell whether this broker may still act as a leader (rule R10)."""

    def lease_left_ms(self) -> float:
        """Return how long the lease still holds; negative when it does not."""

    async def connect(self, on_lost: Callable[[], None], on_hint: Callable[[], None]) -> None:
        """Begin a new session.

        `on_lost` is told once of its end; `on_hint` that something watched may
        have changed.
        """

    async def cluster_id(self) -> str:
        """Return the cluster's id, waiting for the first controller to name it."""

    async def register(self, url: str, rack: str | None, settings: Mapping[str, str]) -> int:
        """Register this broker and return its new incarnation (rule R9).

        `settings` are those that it was told at its start, for others to show.
        """

    async def registration(self) -> str:
        """Return the value of a `Registration`; watches it."""

    async def configs(self, on_hint: Callable[[], None]) -> tuple[bytes | None, bytes | None]:
        """Return what is set for this broker and for the cluster, None where nothing ever was.

        `on_hint` is told that it may have changed.
        """

    async def controller(self) -> ControllerInfo | None:
        """Return who holds `/controller`, epoch 0 as it is not told there; watches it."""

    async def coordinator(self, on_hint: Callable[[], None]) -> ControllerInfo | None:
        """Return who holds `/consumers/coordinator`; `on_hint` is told that it may have changed."""

    async def write_isrs(
        self, changes: Sequence[tuple[TopicIdPartition, IsrProposal]]
    ) -> list[IsrOutcome]:
        """Publish each change in a multi of its own; never raises `ZkError`."""

    async def read_states(
        self, partitions: Sequence[TopicIdPartition]
    ) -> Mapping[TopicIdPartition, PublishedState | None]:
        """Return the states by (topic, topic id, partition), None where one is gone.

        One that cannot be read, because a person has written something else, is left out.
        """

    async def claim_producer_ids(self, count: int) -> int:
        """Reserve `count` producer ids and return the first (rule R7 on ambiguity)."""

    async def close(self) -> None:
        """End the session, and with it the registration."""


class Peers(Protocol):
    """Requests to other services.

    All raise LeadlineError: what the other answered, or ConnectionLost when
    there was no usable answer, so that nobody knows whether it acted.
    """

    async def fetch(
        self, url: str, request: ReplicaFetchRequest, timeout_ms: int
    ) -> ReplicaFetchResponse:
        """Ask a leader for records."""

    async def heartbeat(
        self, url: str, request: HeartbeatRequest, timeout_ms: int
    ) -> HeartbeatResponse:
        """Tell the controller what this broker has applied."""

    async def controlled_shutdown(
        self, url: str, request: ControlledShutdownRequest, timeout_ms: int
    ) -> ControlledShutdownResponse:
        """Ask the controller to let others lead."""

    async def offsets(self, url: str, question: BulkQuestion, timeout_ms: int) -> BulkAnswer:
        """Ask a leader where partitions begin and end."""

    async def keep_staged(
        self, url: str, request: KeepStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Have a follower keep what is staged."""

    async def drop_staged(
        self, url: str, request: DropStagedRequest, timeout_ms: int
    ) -> StagedDone:
        """Have a follower let go of what is staged."""

    async def read_staged(
        self, url: str, request: ReadStagedRequest, timeout_ms: int
    ) -> StagedRecords:
        """Ask another replica for what was staged with a former leader."""

    async def close(self) -> None:
        """Close all connections."""
