"""One broker's log directory: all its partitions, and what must outlive the process."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from leadline_broker.adapters.log import root_files
from leadline_broker.adapters.log.config import LogConfig
from leadline_broker.adapters.log.durable import fsync_path
from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.layout import (
    STAGED_DIRECTORY,
    PartitionIdentity,
    read_identity,
)
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.log.root_files import HighWatermarks
from leadline_broker.adapters.log.syncing import storage_error
from leadline_client.errors import StorageFailed

STRAY_SUFFIX = "-stray"
DELETE_SUFFIX = "-delete"

ReplicaKey = tuple[str, int]
"""Topic id and partition."""

_NAME_MAX = 255
_LOADERS = 4
_MS = 1_000_000


class LogDirectory:
    """The logs under one root, held by one process of one broker of one cluster.

    Directories are never removed in place: a replica that should not be here is
    moved aside as stray and kept for a grace period, a deleted one is renamed
    first, so that a crash leaves no half a log under its own name (rule R12).

    Attributes:
        root: the directory.
        clean_incarnation: the incarnation that last stopped in good order, None
            after any other stop.
        controller_epoch: the highest controller epoch ever obeyed (rules R1, R11).
        failures: why a partition could not be opened, by directory name.

    """

    def __init__(
        self,
        root: Path,
        *,
        cluster_id: str,
        broker_id: int,
        config: LogConfig | None = None,
        files: FileCache | None = None,
    ) -> None:
        """Take the directory, made if it does not exist.

        Raises:
            WrongDirectory: in use, or another cluster's or broker's.
            CorruptFile: what must be remembered does not hold.

        """
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.failures: dict[str, StorageFailed] = {}
        self._config = config or LogConfig()
        self._files = files or FileCache()
        self._logs: dict[ReplicaKey, PartitionLog] = {}
        self._names: dict[str, ReplicaKey] = {}
        self._checkpointing = threading.Lock()
        self._lock: int | None = root_files.lock_root(root)
        try:
            root_files.claim(root, cluster_id, broker_id)
            self.controller_epoch = root_files.read_controller_epoch(root)
            self.clean_incarnation = root_files.take_clean_shutdown(root)
        except BaseException:
            self.release()
            raise

    def logs(self) -> list[PartitionLog]:
        """Return the logs that are open."""
        return list(self._logs.values())

    def load_all(self) -> list[PartitionLog]:
        """Open every partition on disk, recovered where needed; call once, first.

        What cannot be opened is in `failures`; what is nobody's is moved to stray.
        """
        identities = []
        for path in sorted(self.root.iterdir()):
            if path.name.endswith(DELETE_SUFFIX):
                shutil.rmtree(path, ignore_errors=True)
            elif path.is_dir() and not _is_aside(path.name):
                identity = self._identity_or_stray(path)
                if identity is not None:
                    identities.append(identity)
        with ThreadPoolExecutor(_LOADERS) as loaders:
            opened = loaders.map(self._open_or_fail, identities)
        for log in opened:
            if log is not None:
                self._add(log)
        return self.logs()

    def stored(self) -> list[tuple[str, str, int, PartitionLog, int]]:
        """Return (topic, topic id, partition, log, checkpointed high watermark) of each log.

        A high watermark that was never checkpointed is the log start; none is
        beyond what the log still holds.
        """
        known = self.high_watermarks()
        return [
            (
                log.identity.topic,
                *key,
                log,
                max(log.log_start_offset, min(known.get(key, 0), log.log_end_offset)),
            )
            for key, log in self._logs.items()
        ]

    def open(self, topic: str, topic_id: str, partition: int) -> PartitionLog:
        """Return the log of a replica, empty if there is none yet.

        A log of another incarnation of the topic is moved to stray first; one
        that was moved to stray itself is brought back.

        Raises:
            StorageFailed: the partition on disk could not be opened.

        """
        identity = PartitionIdentity(topic, topic_id, partition)
        name = identity.directory_name
        if self._names.get(name) == identity.key:
            return self._logs[identity.key]
        if name in self.failures:
            raise self.failures[name]
        if name in self._names:
            self.to_stray(self._names[name])
        self._make_way(identity)
        log = PartitionLog(self.root, identity, self._config, self._files)
        self._add(log)
        return log

    def to_stray(self, key: ReplicaKey) -> None:
        """Move a replica that should not be here aside; its grace period begins now.

        Nothing is left of one without anything on disk.
        """
        log = self._take(key)
        try:
            log.close()
        except StorageFailed:
            log.discard()  # It is kept as it is; recovery cuts it if it is brought back.
        if log.directory.exists():
            self._move_to_stray(log.directory, log.identity.topic_id)

    def delete(self, key: ReplicaKey) -> Callable[[], None]:
        """Remove a replica for good; return the rest of the work, for any thread.

        When this returns the log is gone under its name and cannot come back.
        """
        log = self._take(key)
        log.discard()
        if not log.directory.exists():
            return _nothing
        target = self._free_name(log.directory.name, log.identity.topic_id, DELETE_SUFFIX)
        self._rename(log.directory, target)
        return partial(shutil.rmtree, target, ignore_errors=True)

    def strays(self) -> dict[str, int]:
        """Return the names of stray directories and when each was moved aside (ms)."""
        found = {}
        for path in sorted(self.root.iterdir()):
            if path.name.endswith(STRAY_SUFFIX):
                with contextlib.suppress(FileNotFoundError):  # `open` has just brought it back.
                    found[path.name] = path.stat().st_mtime_ns // _MS
        return found

    def purge_strays(self, now_ms: int, grace_ms: int) -> list[str]:
        """Delete the strays older than `stray.grace.ms`; return their names. Thread-safe."""
        purged = []
        for name, since in self.strays().items():
            if since <= now_ms - grace_ms:
                doomed = self.root / (name.removesuffix(STRAY_SUFFIX) + DELETE_SUFFIX)
                # `open` may have just brought it back.
                with contextlib.suppress(OSError, StorageFailed):
                    self._rename(self.root / name, doomed)
                    shutil.rmtree(doomed, ignore_errors=True)
                    purged.append(name)
        return purged

    def persist_controller_epoch(self, epoch: int) -> None:
        """Remember the highest controller epoch; durable before it returns.

        Raises:
            StorageFailed: the disk refuses; the epoch before stays as it was.

        """
        if epoch > self.controller_epoch:
            try:
                root_files.write_controller_epoch(self.root, epoch)
            except OSError as error:
                raise storage_error(error) from error
            self.controller_epoch = epoch

    def checkpoint_high_watermarks(self, high_watermarks: HighWatermarks) -> None:
        """Write the high watermarks of all partitions, by (topic id, partition). Thread-safe.

        Raises:
            StorageFailed: the disk refuses; the checkpoint before stays as it was.

        """
        with self._checkpointing:
            try:
                root_files.write_high_watermarks(self.root, high_watermarks)
            except OSError as error:
                raise storage_error(error) from error

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """Return the checkpointed high watermarks, by (topic id, partition)."""
        return root_files.read_high_watermarks(self.root)

    def close(self, incarnation: int) -> bool:
        """Close all logs and give the directory up; tell whether the stop was clean.

        Only then is the marker with the incarnation written, and the next start
        needs no recovery.
        """
        clean = not self.failures
        for log in self.logs():
            try:
                log.close()
            except StorageFailed:
                clean = False
        if clean:
            try:
                root_files.write_clean_shutdown(self.root, incarnation)
            except OSError:
                clean = False
        self.release()
        return clean

    def release(self) -> None:
        """Give the directory up as it is: the next start recovers every log."""
        for log in self.logs():
            log.discard()
        self._logs.clear()
        self._names.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _identity_or_stray(self, path: Path) -> PartitionIdentity | None:
        try:
            identity = read_identity(path)
        except CorruptFile:
            self._move_to_stray(path, "unknown")
            return None
        if identity.directory_name != path.name:
            self._move_to_stray(path, identity.topic_id)
            return None
        return identity

    def _open_or_fail(self, identity: PartitionIdentity) -> PartitionLog | None:
        clean = self.clean_incarnation is not None
        try:
            return PartitionLog(self.root, identity, self._config, self._files, clean=clean)
        except StorageFailed as error:
            self.failures[identity.directory_name] = error
            return None

    def _add(self, log: PartitionLog) -> None:
        self._logs[log.identity.key] = log
        self._names[log.identity.directory_name] = log.identity.key

    def _take(self, key: ReplicaKey) -> PartitionLog:
        log = self._logs.pop(key)
        del self._names[log.identity.directory_name]
        return log

    def _make_way(self, identity: PartitionIdentity) -> None:
        """See that nothing or this very partition lies under its name."""
        path = self.root / identity.directory_name
        if path.exists():
            found = self._identity_or_stray(path)
            if found is not None and found != identity:
                self._move_to_stray(path, found.topic_id)
        if not path.exists():
            self._bring_back(path, identity.topic_id)

    def _bring_back(self, path: Path, topic_id: str) -> None:
        """Take the latest stray of a partition back under its name, if there is one."""
        strays = self.root.glob(f"{path.name}.{topic_id}*{STRAY_SUFFIX}")
        with contextlib.suppress(FileNotFoundError):  # Its grace period ended just now.
            for stray in sorted(strays, key=lambda found: found.stat().st_mtime_ns)[-1:]:
                self._rename(stray, path)

    def _move_to_stray(self, path: Path, topic_id: str) -> None:
        os.utime(path)
        self._rename(path, self._free_name(path.name, topic_id, STRAY_SUFFIX))

    def _free_name(self, name: str, topic_id: str, suffix: str) -> Path:
        for number in itertools.count(1):
            tail = f".{topic_id}{f'.{number}' if number > 1 else ''}{suffix}"
            target = self.root / (name[: _NAME_MAX - len(tail)] + tail)
            if not target.exists():
                break
        return target

    def _rename(self, path: Path, target: Path) -> None:
        """Rename durably; raises StorageFailed where the disk refuses."""
        try:
            path.rename(target)
            fsync_path(self.root)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error) from error


def _is_aside(name: str) -> bool:
    return name.endswith(STRAY_SUFFIX) or name == STAGED_DIRECTORY


def _nothing() -> None:
    """Do the rest of deleting what was never on disk."""
