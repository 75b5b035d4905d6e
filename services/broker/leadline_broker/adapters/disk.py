"""The broker's logs by replica, over the log directory."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from leadline_broker.adapters.lazy_log import LazyLog
from leadline_broker.adapters.log.config import LogConfig
from leadline_broker.adapters.log.directory import DELETE_SUFFIX, STRAY_SUFFIX, LogDirectory
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.layout import PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.staged_files import StagedFiles
from leadline_common.settings import BrokerSettings

logger = structlog.get_logger(__name__)

_Key = tuple[str, int]
_ASIDE = re.compile(r"\.[0-9a-fA-F-]+(\.\d+)?-(stray|delete)$")


class DiskLogs:
    """All logs of one broker by (topic id, partition). See `runtime.ports.LogStore`.

    Attributes:
        staged: what waits beside the logs to be published.

    """

    def __init__(self, settings: BrokerSettings, cluster_id: str) -> None:
        """Take the directory and recover what is in it.

        Raises:
            WrongDirectory: in use, or another cluster's or broker's.
            CorruptFile: what must be remembered does not hold.

        """
        self._files = FileCache(settings.open_files_max)
        self._directory = LogDirectory(
            Path(settings.log_dir),
            cluster_id=cluster_id,
            broker_id=settings.broker_id,
            config=LogConfig(
                segment_bytes=settings.log_segment_bytes,
                producer_id_expiration_ms=settings.producer_id_expiration_ms,
                publish_app_retention_ms=settings.publish_app_retention_ms,
            ),
            files=self._files,
        )
        self.staged = StagedFiles(self._directory.root)
        loaded = self._directory.load_all()
        self._logs: dict[_Key, PartitionLog | LazyLog] = {_key(log): log for log in loaded}
        self._occupied = set(map(_occupied_name, self._directory.root.iterdir()))
        self._report(loaded)

    def _report(self, loaded: list[PartitionLog]) -> None:
        logger.info(
            "logs opened",
            logs=len(loaded),
            clean_incarnation=self._directory.clean_incarnation,
            scanned_bytes=sum(log.recovery.scanned_bytes for log in loaded),
        )
        for log in loaded:
            if log.recovery.cut_bytes:
                logger.warning(
                    "invalid tail cut",
                    directory=log.directory.name,
                    cut_bytes=log.recovery.cut_bytes,
                    cut_offset=log.recovery.cut_offset,
                    reason=log.recovery.reason,
                )
        for name, failure in self._directory.failures.items():
            logger.error("log not opened", directory=name, reason=failure.message)

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch ever obeyed (rules R1, R11)."""
        return self._directory.controller_epoch

    def stored(self) -> list[tuple[str, str, int, PartitionLog, int]]:
        """Return the replicas that are open, with their checkpointed high watermarks."""
        return self._directory.stored()

    def open(self, topic: str, topic_id: str, partition: int) -> PartitionLog | LazyLog:
        """Return the log of a replica; see `LogDirectory.open`.

        Where nothing was ever written under its name, no file is looked at.
        """
        identity = PartitionIdentity(topic, topic_id, partition)
        log: PartitionLog | LazyLog
        if identity.directory_name in self._occupied:
            log = self._directory.open(topic, topic_id, partition)
        else:
            log = LazyLog(self._directory.root, identity, self._open_now)
        self._logs[topic_id, partition] = log
        return log

    def _open_now(self, identity: PartitionIdentity) -> PartitionLog:
        self._occupied.add(identity.directory_name)
        return self._directory.open(identity.topic, identity.topic_id, identity.partition)

    def to_stray(self, key: _Key) -> None:
        """Move a replica aside; see `LogDirectory.to_stray`."""
        if self._was_written(key):
            self._directory.to_stray(key)

    def delete(self, key: _Key) -> Callable[[], None]:
        """Remove a replica for good; see `LogDirectory.delete`."""
        return self._directory.delete(key) if self._was_written(key) else _nothing

    def _was_written(self, key: _Key) -> bool:
        """Let go of a replica; tell whether the directory knows of it."""
        log = self._logs.pop(key, None)
        if isinstance(log, LazyLog):
            log.drop()
            return log.written() is not None
        return log is not None

    def persist_controller_epoch(self, epoch: int) -> None:
        """Remember the highest controller epoch; durable before it returns."""
        self._directory.persist_controller_epoch(epoch)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[_Key, int]) -> None:
        """Write all high watermarks."""
        self._directory.checkpoint_high_watermarks(high_watermarks)

    def limit_open_files(self, count: int) -> None:
        """Hold no more than so many files open, but for those in use."""
        self._files.resize(count)

    def purge_strays(self, now_ms: int, grace_ms: int) -> list[str]:
        """Delete the strays older than the grace time; return their names."""
        return self._directory.purge_strays(now_ms, grace_ms)

    def space(self) -> tuple[int, int]:
        """Return the bytes of the disk in all, and those that are free. Thread-safe."""
        usage = shutil.disk_usage(self._directory.root)
        return usage.total, usage.free

    def close(self, incarnation: int) -> bool:
        """Close all logs, leaving the clean-shutdown marker if all went well."""
        return self._directory.close(incarnation)


def _key(log: PartitionLog) -> _Key:
    return log.identity.topic_id, log.identity.partition


def _occupied_name(path: Path) -> str:
    """Return the partition's directory name that an entry of the root belongs to.

    Strays and what is being deleted have further parts: the topic id, perhaps a
    number, and what they are.
    """
    if not path.name.endswith((STRAY_SUFFIX, DELETE_SUFFIX)):
        return path.name
    return _ASIDE.sub("", path.name)


def _nothing() -> None:
    """Do the rest of deleting what was never there."""
