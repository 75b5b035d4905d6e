"""The broker's logs by replica, on top of the log directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from leadline_broker.adapters.log.directory import LogDirectory, Stored
from leadline_broker.adapters.log.durability import OnFlushed
from leadline_broker.adapters.log.errors import LogClosed
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.kernel_fsyncs import Fsyncs, kernel_fsyncs
from leadline_broker.adapters.log.layout import LogConfig, PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.log.producer_replay import OnSegment, nothing
from leadline_broker.adapters.log.set_aside import stray_key
from leadline_broker.adapters.log.stored_batches import StoredBatches
from leadline_broker.adapters.staged_files import StagedFiles
from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.producers import ProducerStates
from leadline_broker.domain.state import ReplicaKey
from leadline_client.batch_header import Buffer
from leadline_client.errors import OffsetOutOfRange, StorageFailed
from leadline_common.open_files import open_files_limit
from leadline_common.settings import BrokerSettings

logger = structlog.get_logger(__name__)

_NO_EPOCHS: Final = EpochHistory()
_NO_PRODUCERS: Final = ProducerStates()


@dataclass(eq=False, slots=True)
class LazyLog:
    """Implements `runtime.ports.Log`; opens its files at the first write.

    So thousands of idle replicas cost no files.
    """

    root: Path
    identity: PartitionIdentity
    open_log: Callable[[PartitionIdentity], PartitionLog]
    _log: PartitionLog | None = field(default=None, init=False)
    _dropped: bool = field(default=False, init=False)
    _segment_bytes: int | None = field(default=None, init=False)

    def written(self) -> PartitionLog | None:
        """Return the underlying log, or None if nothing was ever written."""
        return self._log

    def drop(self) -> None:
        """Refuse to open from now on: the replica was removed."""
        self._dropped = True

    def _opened(self) -> PartitionLog:
        if self._log is None:
            if self._dropped:
                raise LogClosed(f"the log of {self.identity.directory_name} is closed")
            self._log = self.open_log(self.identity)
            if self._segment_bytes is not None:
                self._log.roll_at(self._segment_bytes)
        return self._log

    @property
    def directory(self) -> Path:
        """The directory of its files, which may not exist yet."""
        return self.root / self.identity.directory_name

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""
        return self._log.log_start_offset if self._log is not None else 0

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record (LEO)."""
        return self._log.log_end_offset if self._log is not None else 0

    @property
    def durable_end_offset(self) -> int:
        """The end up to which the log is fsynced."""
        return self._log.durable_end_offset if self._log is not None else 0

    @property
    def epochs(self) -> EpochHistory:
        """Which leader epoch wrote which offsets; for reading."""
        return self._log.epochs if self._log is not None else _NO_EPOCHS

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers as of the log end; for reading."""
        return self._log.producers if self._log is not None else _NO_PRODUCERS

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self._log.size_bytes if self._log is not None else 0

    def size_from(self, offset: int) -> int:
        """See `PartitionLog.size_from`."""
        return self._log.size_from(offset) if self._log is not None else 0

    @property
    def failed(self) -> bool:
        """Whether a write or an fsync failed."""
        return self._log is not None and self._log.failed

    @property
    def lacks_records(self) -> bool:
        """See `PartitionLog.lacks_records`."""
        return self._log is not None and self._log.lacks_records

    @property
    def has_unsynced(self) -> bool:
        """See `PartitionLog.has_unsynced`."""
        return self._log is not None and self._log.has_unsynced

    def roll_at(self, segment_bytes: int) -> None:
        """See `PartitionLog.roll_at`."""
        self._segment_bytes = segment_bytes
        if self._log is not None:
            self._log.roll_at(segment_bytes)

    def append(self, data: Buffer, *, crc_checked: bool = False) -> int:
        """See `PartitionLog.append`."""
        return self._opened().append(data, crc_checked=crc_checked)

    def flush(self) -> int:
        """See `PartitionLog.flush`."""
        return self._log.flush() if self._log is not None else 0

    def begin_flush(self, on_flushed: OnFlushed) -> bool:
        """See `PartitionLog.begin_flush`."""
        return self._log is not None and self._log.begin_flush(on_flushed)

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """See `PartitionLog.read`."""
        if self._log is not None:
            return self._log.read(offset, max_bytes, end_offset)
        if offset:
            raise OffsetOutOfRange(
                f"offset {offset} of an empty log", log_start_offset=0, log_end_offset=0
            )
        return b""

    @property
    def batches(self) -> StoredBatches:
        """See `PartitionLog.batches`."""
        return self._opened().batches

    def learn_timestamps(self) -> bool:
        """See `PartitionLog.learn_timestamps`."""
        return self._log is not None and self._log.learn_timestamps()

    def batch_for_timestamp(self, timestamp: int, from_offset: int) -> bytes:
        """See `PartitionLog.batch_for_timestamp`."""
        return self._log.batch_for_timestamp(timestamp, from_offset) if self._log else b""

    def truncate_to(self, offset: int) -> int:
        """See `PartitionLog.truncate_to`."""
        return self._log.truncate_to(offset) if self._log is not None else 0

    def reset_to(self, offset: int, producers: ProducerStates) -> None:
        """See `PartitionLog.reset_to`."""
        if offset or self._log is not None:
            self._opened().reset_to(offset, producers)

    def apply_retention(
        self, now_ms: int, retention_ms: int, retention_bytes: int, limit_offset: int
    ) -> int:
        """See `PartitionLog.apply_retention`."""
        if self._log is None:
            return 0
        return self._log.apply_retention(now_ms, retention_ms, retention_bytes, limit_offset)

    def removal(self) -> Callable[[], None] | None:
        """See `PartitionLog.removal`."""
        return self._log.removal() if self._log is not None else None


class DiskLogs:
    """All logs of one broker by (topic id, partition); implements `runtime.ports.LogStore`.

    Attributes:
        staged: the staged uploads.
        open_again: the method of its `UnopenedLogs`.
        stored, persist_controller_epoch, checkpoint_high_watermarks, own_directory_ids,
            forget_lost, is_unused, close: the methods of the `LogDirectory`.
        purge_strays: the method `purge` of its `Strays`.
        persist_directory_version, renew_directory_id: those of its `DirectoryIdentity`.

    """

    def __init__(
        self,
        settings: BrokerSettings,
        cluster_id: str,
        on_segment: OnSegment = nothing,
        *,
        fsyncs: Fsyncs | None = None,
    ) -> None:
        """Lock the log directory and recover its logs; see `LogDirectory` for the errors.

        `on_segment` is called before a segment is read, from several threads. If it raises, the
        directory is unlocked and the other logs stay as they are. Without `fsyncs`, every fsync
        needs a thread.
        """
        self._files = FileCache(settings.open_files_max, fsyncs, open_files_limit())
        self._directory = LogDirectory(
            Path(settings.log_dir),
            cluster_id=cluster_id,
            broker_id=settings.broker_id,
            config=LogConfig(segment_bytes=settings.log_segment_bytes),
            files=self._files,
        )
        self.staged = StagedFiles(self._directory.root)
        self.open_again = self._directory.unopened.open_again
        self.stored = self._directory.stored
        self.persist_controller_epoch = self._directory.persist_controller_epoch
        self.checkpoint_high_watermarks = self._directory.checkpoint_high_watermarks
        self.purge_strays = self._directory.strays.purge
        self.own_directory_ids = self._directory.own_directory_ids
        self.forget_lost = self._directory.forget_lost
        self.is_unused = self._directory.is_unused
        self.close = self._directory.close
        self.persist_directory_version = self._directory.identity.persist_version
        self.renew_directory_id = self._directory.identity.renew_id
        loaded = self._load_all(on_segment)
        self._logs: dict[ReplicaKey, PartitionLog | LazyLog] = {
            log.identity.key: log for log in loaded
        }
        names = [path.name for path in self._directory.root.iterdir()]
        self._occupied = set(names)
        self._strays = {stray_key(name) for name in names}
        self._report(loaded)

    def _load_all(self, on_segment: OnSegment) -> list[PartitionLog]:
        try:
            return self._directory.load_all(on_segment)
        except BaseException:
            self._directory.release()
            raise

    def _report(self, loaded: list[PartitionLog]) -> None:
        logger.info(
            "logs opened",
            logs=len(loaded),
            directory_id=self.directory_id,
            clean_incarnation=self._directory.clean_incarnation,
            scanned_bytes=sum(log.recovery.scanned_bytes for log in loaded),
        )
        for log in loaded:
            if log.recovery.cut_bytes:
                logger.warning(
                    "invalid tail truncated",
                    directory=log.directory.name,
                    cut_bytes=log.recovery.cut_bytes,
                    cut_offset=log.recovery.cut_offset,
                    reason=log.recovery.reason,
                )
        for topic_id, partition in self._directory.lost:
            logger.error("log lost", topic_id=topic_id, partition=partition)
        for (topic_id, partition), failure in self._directory.unopened.failures.items():
            logger.error(
                "log not opened", topic_id=topic_id, partition=partition, reason=failure.message
            )

    @property
    def directory_id(self) -> str:
        """The id that was made with the log directory (rule R17)."""
        return self._directory.identity.directory_id

    @property
    def directory_version(self) -> int:
        """The version of the log directory (rule R17)."""
        return self._directory.identity.version

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch that this broker has accepted (rules R1, R11)."""
        return self._directory.controller_epoch

    @property
    def has_retriable(self) -> bool:
        """See `UnopenedLogs.has_retriable`."""
        return self._directory.unopened.has_retriable

    def take_opened(self) -> list[Stored]:
        """See `LogDirectory.take_opened`."""
        opened = self._directory.take_opened()
        self._logs |= {log.identity.key: log for *_, log, _ in opened}
        return opened

    @property
    def closed(self) -> int:
        """How many logs `close` has closed so far."""
        return self._directory.closed

    def open(self, topic: str, topic_id: str, partition: int) -> PartitionLog | LazyLog:
        """Return the log of a replica; see `LogDirectory.open`.

        If nothing was ever written under its name, no file is opened.
        """
        identity = PartitionIdentity.checked(topic, topic_id, partition)
        log: PartitionLog | LazyLog
        if identity.directory_name in self._occupied or identity.key in self._strays:
            log = self._directory.open(topic, topic_id, partition)
        else:
            log = LazyLog(self._directory.root, identity, self._open_now)
        self._logs[topic_id, partition] = log
        return log

    def _open_now(self, identity: PartitionIdentity) -> PartitionLog:
        self._occupied.add(identity.directory_name)
        return self._directory.open(identity.topic, identity.topic_id, identity.partition)

    def to_stray(self, key: ReplicaKey) -> None:
        """See `LogDirectory.to_stray`."""
        if self._was_written(key):
            self._directory.to_stray(key)

    def delete(self, key: ReplicaKey) -> Callable[[], None]:
        """See `LogDirectory.delete`."""
        was_written = self._was_written(key) or self.is_unused(key)
        return self._directory.delete(key) if was_written else lambda: None

    @property
    def unfinished(self) -> Set[ReplicaKey]:
        """See `LogDirectory.unfinished`."""
        return self._directory.unfinished

    def _was_written(self, key: ReplicaKey) -> bool:
        """Drop the log of a replica; return whether it is in the log directory."""
        log = self._logs.pop(key, None)
        if isinstance(log, LazyLog):
            log.drop()
            return log.written() is not None
        return log is not None

    def limit_open_files(self, count: int) -> None:
        """Keep at most `count` files open, besides those in use."""
        self._files.resize(count)

    def space(self) -> tuple[int, int]:
        """Return the total and the free bytes of the disk. Thread-safe."""
        usage = shutil.disk_usage(self._directory.root)
        return usage.total, usage.free


def open_logs(
    settings: BrokerSettings, cluster_id: str, on_segment: OnSegment = nothing
) -> DiskLogs:
    """Lock a broker's log directory and recover its logs; see `DiskLogs`.

    Raises:
        WrongDirectory: the directory is in use, or belongs to another broker.
        StorageFailed: it cannot be read or written.

    """
    try:
        return DiskLogs(settings, cluster_id, on_segment, fsyncs=kernel_fsyncs())
    except OSError as error:
        raise StorageFailed(
            f"the log directory {settings.log_dir} cannot be used: {error}. Mend the disk, or "
            "correct log.dir"
        ) from error
