"""The broker's logs by replica, over the log directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from leadline_broker.adapters.lazy_log import LazyLog
from leadline_broker.adapters.log.config import LogConfig
from leadline_broker.adapters.log.directory import STRAY_SUFFIX, LogDirectory
from leadline_broker.adapters.log.durable import fsync_path
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.layout import PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_common.settings import BrokerSettings

logger = structlog.get_logger(__name__)

_Key = tuple[str, int]


class DiskLogs:
    """All logs of one broker by (topic id, partition). See `runtime.ports.LogStore`."""

    def __init__(self, settings: BrokerSettings, cluster_id: str) -> None:
        """Take the directory and recover what is in it.

        Raises:
            WrongDirectory: in use, or another cluster's or broker's.
            CorruptFile: what must be remembered does not hold.

        """
        self._directory = LogDirectory(
            Path(settings.log_dir),
            cluster_id=cluster_id,
            broker_id=settings.broker_id,
            config=LogConfig(
                segment_bytes=settings.log_segment_bytes,
                producer_id_expiration_ms=settings.producer_id_expiration_ms,
            ),
            files=FileCache(settings.open_files_max),
        )
        loaded = self._directory.load_all()
        self._logs: dict[_Key, PartitionLog | LazyLog] = {_key(log): log for log in loaded}
        self._occupied = {path.name for path in self._directory.root.iterdir()}
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
        marks = self._directory.high_watermarks()
        return [
            (log.identity.topic, *_key(log), log, marks.get(_key(log), 0))
            for log in self._directory.logs()
        ]

    def open(self, topic: str, topic_id: str, partition: int) -> PartitionLog | LazyLog:
        """Return the log of a replica; see `LogDirectory.open`.

        One that was moved to stray is brought back: the controller knows it after all.
        """
        identity = PartitionIdentity(topic, topic_id, partition)
        self._bring_back(identity)
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

    def _bring_back(self, identity: PartitionIdentity) -> None:
        """Give a stray of this very replica its place again, unless it is taken."""
        name = identity.directory_name
        stray = f"{name}.{identity.topic_id}{STRAY_SUFFIX}"
        if stray not in self._occupied:
            return
        source, target = self._directory.root / stray, self._directory.root / name
        if source.exists() and not target.exists():
            source.rename(target)
            fsync_path(self._directory.root)
            self._occupied.add(name)
            logger.warning("stray replica brought back", name=stray)

    def to_stray(self, key: _Key) -> None:
        """Move a replica aside; see `LogDirectory.to_stray`."""
        log = self._written(key)
        if log is not None:
            path = self._directory.to_stray(log)
            if path is not None:
                self._occupied.add(path.name)

    def delete(self, key: _Key) -> Callable[[], None]:
        """Remove a replica for good; see `LogDirectory.delete`."""
        log = self._written(key)
        return _nothing if log is None else self._directory.delete(log)

    def _written(self, key: _Key) -> PartitionLog | None:
        """Let go of a replica; return its log if anything was ever written."""
        log = self._logs.pop(key, None)
        if not isinstance(log, LazyLog):
            return log
        log.drop()
        return log.written()

    def persist_controller_epoch(self, epoch: int) -> None:
        """Remember the highest controller epoch; durable before it returns."""
        self._directory.persist_controller_epoch(epoch)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[_Key, int]) -> None:
        """Write all high watermarks."""
        self._directory.checkpoint_high_watermarks(high_watermarks)

    def purge_strays(self, now_ms: int, grace_ms: int) -> list[str]:
        """Delete the strays older than the grace time; return their names."""
        return self._directory.purge_strays(now_ms, grace_ms)

    def close(self, incarnation: int) -> bool:
        """Close all logs, leaving the clean-shutdown marker if all went well."""
        return self._directory.close(incarnation)


def _key(log: PartitionLog) -> _Key:
    return log.identity.topic_id, log.identity.partition


def _nothing() -> None:
    """Do the rest of deleting what was never there."""
