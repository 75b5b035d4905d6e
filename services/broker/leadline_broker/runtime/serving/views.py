"""What the broker's runtime answers with, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchedData:
    """Whole stored batches of one partition, and where it stands.

    `next_offset` is the offset after the last batch in `records`, or the offset
    asked for when there are none. All offsets; `records` may begin before the
    offset asked for, because batches are never cut.
    """

    records: bytes
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    next_offset: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where a leader epoch ends in the log of the present leader.

    `epoch` is the latest one not above the epoch asked for, -1 where the log knows
    of none; `end_offset` is exclusive, and the log end for the present epoch.
    """

    epoch: int
    end_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StagingResult:
    """What was staged, and until when it is kept (Unix ms) unless it is published."""

    staged_id: str
    records: int
    bytes: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """Where a published batch lies, inclusive; None where a duplicate's is no longer known.

    `last_offset` is None if, and only if, a later batch of the application is in the log.
    """

    base_offset: int | None
    last_offset: int | None
    leader_epoch: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One local replica as `GET replicas` shows it; `isr` is known to the leader only.

    `durable_end_offset` is the end up to which the log is fsynced (rule R4).
    """

    topic: str
    topic_id: str
    partition: int
    role: str
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    durable_end_offset: int
    high_watermark: int
    isr: tuple[int, ...] | None
    log_dir: str


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one replica took in and gave out within a window, and the bytes that it holds.

    A leader counts what producers append and consumers read, a follower what it
    replicates and what is read from it.
    """

    topic: str
    topic_id: str
    partition: int
    is_leader: bool
    size_bytes: int
    bytes_in: int
    records_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class BrokerLoadReport:
    """The load of every replica on a broker, and the room on its disk. Times in Unix ms."""

    broker_id: int
    window_start_ms: int
    window_end_ms: int
    disk_total_bytes: int
    disk_free_bytes: int
    partitions: list[ReplicaLoad]
