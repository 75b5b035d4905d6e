"""A broker's log directory: its partitions and its checkpoints."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

from leadline_broker.adapters.log import root_files
from leadline_broker.adapters.log.checked_files import fsync_path
from leadline_broker.adapters.log.committed_ends import CommittedEnds
from leadline_broker.adapters.log.deletions import Deletions, remove_deleted
from leadline_broker.adapters.log.directory_identity import DirectoryIdentity
from leadline_broker.adapters.log.errors import STORAGE_ERRORS, CorruptFile, storage_error
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.high_watermark_file import HighWatermarkFile
from leadline_broker.adapters.log.layout import (
    LogConfig,
    PartitionIdentity,
    is_replica_directory,
    read_identity,
)
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.log.producer_replay import OnSegment, nothing
from leadline_broker.adapters.log.root_files import HighWatermarks
from leadline_broker.adapters.log.set_aside import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    free_name,
    latest_stray,
    removed_as_empty,
)
from leadline_broker.adapters.log.unopened_logs import UnopenedLogs
from leadline_broker.domain.state import ReplicaKey
from leadline_client.errors import StorageFailed

_LOADERS = 4
_MS = 1_000_000


class LogDirectory:
    """The logs of one broker of one cluster under one root, locked by one process.

    `runtime.ports.LogStore` documents the methods that the two share, and their errors.

    Directories with files are never removed in place. An unexpected replica is renamed to a
    stray and kept for a grace period; a deleted replica is renamed before its files are removed.
    So a crash leaves no incomplete log under its name (rule R12).

    Attributes:
        root: the directory.
        clean_incarnation: the incarnation that shut down cleanly, None if the last stop was
            not clean.
        controller_epoch: the highest controller epoch that this broker has accepted (rules
            R1, R11).
        unopened: the logs that could not be opened.
        identity: which directory this is (rule R17).
        lost: the replicas that `load_all` found without the records that they had.
        closed: how many logs `close` has closed so far.

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
        """Lock the directory; create it if it does not exist.

        Raises:
            WrongDirectory: it is in use, or belongs to another cluster or broker.
            CorruptFile: the controller epoch cannot be read.

        """
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.unopened = UnopenedLogs(self._open_stored)
        self.closed = 0
        self.lost: list[ReplicaKey] = []
        self._config = config or LogConfig()
        self._files = files or FileCache()
        self._logs: dict[ReplicaKey, PartitionLog] = {}
        self._names: dict[str, ReplicaKey] = {}
        self._watermarks = HighWatermarkFile(root)
        self._setting_aside = threading.Lock()
        self._lock = root_files.lock_root(root)
        try:
            self.identity = DirectoryIdentity(root, cluster_id, broker_id)
            self._inventory = self.identity.inventory
            self._deletions = Deletions(root, self._inventory)
            self.controller_epoch = root_files.read_controller_epoch(root)
            self.clean_incarnation = root_files.take_clean_shutdown(root)
        except BaseException:
            self.release()
            raise

    def logs(self) -> list[PartitionLog]:
        """Return the open logs."""
        return list(self._logs.values())

    def load_all(self, on_segment: OnSegment = nothing) -> list[PartitionLog]:
        """Open every partition on disk, with recovery if necessary; call this once, first.

        Partitions that cannot be opened are `unopened`; unidentifiable directories become
        strays, unless they are empty or nothing of a log is in them. Replicas that have lost
        records get a directory id of their own (rule R17). `on_segment` is called in several
        threads.
        """
        identities = []
        remove_deleted(self.root)
        for path in sorted(self.root.iterdir()):
            if is_replica_directory(path) and not path.name.endswith(DELETE_SUFFIX):
                identity = self._identity_or_stray(path)
                if identity is not None:
                    identities.append(identity)
        with ThreadPoolExecutor(_LOADERS) as loaders:
            tried = loaders.map(partial(self.unopened.tried, on_segment=on_segment), identities)
        for log in self.unopened.sorted_out(zip(identities, tried, strict=True)):
            self._add(log)
        self._note_losses()
        return self.logs()

    def _note_losses(self) -> None:
        """Find the logs that are gone, cannot be read, or lack committed records at their end.

        One that cannot be read has an id of its own only until it can be read again.
        """
        inventory, committed = self._inventory, CommittedEnds.read(self.root, self.identity.version)
        self._watermarks.note_start(committed.by_key, {*self._logs, *self.unopened.failures})
        stored = {key: log for key, log in self._logs.items() if log.recovery.has_segments}
        gone = [key for key in inventory.lost_in(stored) if key not in self.unopened.failures]
        self.unopened.give_ids(committed)
        inventory.add(stored)
        short = [key for key, log in stored.items() if committed.is_short(log)]
        self.lost = [*gone, *short]
        directory_id = uuid4().hex
        inventory.lose(gone, directory_id, written=False)
        inventory.lose(short, directory_id, written=True)
        if short and committed.are_known:  # They are not found again at the next start.
            left = {key: self._logs[key].log_end_offset for key in short}
            self.checkpoint_high_watermarks({**committed.by_key, **left})

    def take_opened(self) -> None:
        """Take into use what `unopened` has opened again; the broker is about to register.

        One that ends below its high watermark has lost records, and gets an id of its own.
        """
        opened, short = self.unopened.opened()
        with STORAGE_ERRORS:
            self._inventory.lose(short, uuid4().hex, written=True)
        for log in opened:
            self._add(log)

    def own_directory_ids(self) -> dict[ReplicaKey, str]:
        """Return the ids of the replicas that have lost their logs within this directory."""
        return self._inventory.own_directory_ids() | self.unopened.directory_ids

    def forget_lost(self, assigned: Collection[ReplicaKey]) -> None:
        """Forget lost logs of replicas that are not assigned to this broker any more."""
        with STORAGE_ERRORS:
            self._inventory.keep_only(assigned)

    def stored(self) -> list[tuple[str, str, int, PartitionLog, int]]:
        """Return (topic, topic id, partition, log, checkpointed high watermark) of each log.

        A high watermark without a checkpoint is the log start; none is beyond the log end.
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

        Raises:
            InvalidRequest: the topic's name or id cannot be a part of a path.
            StorageFailed: the log cannot be opened now.

        """
        identity = PartitionIdentity.checked(topic, topic_id, partition)
        name = identity.directory_name
        if self._names.get(name) == identity.key:
            return self._logs[identity.key]
        if identity.key in self.unopened.failures:
            raise self.unopened.failures[identity.key]
        if name in self._names:
            self.to_stray(self._names[name])
        self._deletions.finish(self.root / name)
        created = partial(self._created, identity.key)
        with STORAGE_ERRORS:
            self._prepare_directory(identity)
            log = PartitionLog(self.root, identity, self._config, self._files, on_created=created)
            if log.recovery.has_segments:  # It was a stray.
                self._inventory.add([identity.key])
        self._add(log)
        return log

    def to_stray(self, key: ReplicaKey) -> None:
        """Rename an unexpected replica to a stray; its grace period starts now.

        A replica without files leaves no stray.
        """
        log = self._take(key)
        try:
            log.close()
        except StorageFailed:
            log.discard()  # The files stay as they are; recovery truncates them if restored.
        self._watermarks.log_goes(key)
        with STORAGE_ERRORS:
            self._inventory.remove(key)
        if log.directory.exists():
            self._move_to_stray(log.directory, log.identity.topic_id)

    def delete(self, key: ReplicaKey) -> Callable[[], None]:
        """Delete a replica; return the removal of its files, which may run in any thread.

        Once this returns, the log no longer exists under its name and cannot be restored. If it
        raises StorageFailed, the deletion is `unfinished`, and goes on with the next call.
        """
        if key in self._logs:
            log = self._take(key)
            log.discard()
            self._watermarks.log_goes(key)
            self._deletions.begin(key, log.directory)
        return self._deletions.go_on(key)

    @property
    def unfinished(self) -> Set[ReplicaKey]:
        """The replicas whose deletions have failed so far."""
        return self._deletions.unfinished

    def strays(self) -> dict[str, int]:
        """Return the names of stray directories and when each became a stray (Unix ms)."""
        found = {}
        for path in sorted(self.root.iterdir()):
            if path.name.endswith(STRAY_SUFFIX):
                with contextlib.suppress(FileNotFoundError):  # `open` has just restored it.
                    found[path.name] = path.stat().st_mtime_ns // _MS
        return found

    def purge_strays(self, now_ms: int, grace_ms: int) -> list[str]:
        """Delete the strays older than `stray.grace.ms`; return their names. Thread-safe.

        What could not be removed of replicas that were deleted earlier is removed, too.
        """
        with STORAGE_ERRORS:
            old = {one: since for one, since in self.strays().items() if since <= now_ms - grace_ms}
            purged = [name for name, since in old.items() if self._rename_expired(name, since)]
            remove_deleted(self.root)
        return purged

    def _rename_expired(self, name: str, since: int) -> bool:
        """Rename a stray for its removal; return False if it is not that one any more."""
        # `open` may have just restored it, and its replica may be a stray of this name again.
        stray = self.root / name
        with self._setting_aside, contextlib.suppress(OSError, StorageFailed):
            if stray.stat().st_mtime_ns // _MS == since:
                renamed = self.root / (name.removesuffix(STRAY_SUFFIX) + DELETE_SUFFIX)
                self._rename(stray, renamed)
                return True
        return False

    def persist_controller_epoch(self, epoch: int) -> None:
        """Store the highest accepted controller epoch; durable when this returns."""
        if epoch > self.controller_epoch:
            with STORAGE_ERRORS:
                root_files.write_controller_epoch(self.root, epoch)
            self.controller_epoch = epoch

    def checkpoint_high_watermarks(self, high_watermarks: HighWatermarks) -> None:
        """Write the high watermarks of all partitions, by (topic id, partition). Thread-safe.

        Those of logs that could not be read stay as they were.
        """
        with STORAGE_ERRORS:
            self._watermarks.write({**self.unopened.high_watermarks, **high_watermarks})

    def high_watermarks(self) -> dict[ReplicaKey, int]:
        """Return the checkpointed high watermarks, by (topic id, partition); none if unreadable."""
        return self._watermarks.read()

    def close(self, incarnation: int) -> bool:
        """Close all logs and unlock the directory; return whether the shutdown was clean.

        Only a clean shutdown writes the marker with the incarnation, so that the next start
        needs no recovery.
        """
        clean = not self.unopened.failures
        for log in self.logs():
            try:
                log.close()
            except StorageFailed:
                clean = False
            self.closed += 1
        if clean:
            try:
                root_files.write_clean_shutdown(self.root, incarnation)
            except OSError:
                clean = False
        self.release()
        return clean

    def release(self) -> None:
        """Unlock the directory without flushing; the next start recovers every log."""
        for log in self.logs():
            log.discard()
        self.unopened.release()
        self._logs.clear()
        self._names.clear()
        self._lock.release()

    def _identity_or_stray(self, path: Path) -> PartitionIdentity | None:
        try:
            identity = read_identity(path)
        except CorruptFile:
            if not removed_as_empty(path):
                self._move_to_stray(path, "unknown")
            return None
        if identity.directory_name != path.name:
            self._move_to_stray(path, identity.topic_id)
            return None
        return identity

    def _open_stored(self, identity: PartitionIdentity, on_segment: OnSegment) -> PartitionLog:
        files, clean = self._files, self.clean_incarnation is not None
        return PartitionLog(
            self.root, identity, self._config, files, clean=clean, on_segment=on_segment
        )

    def _add(self, log: PartitionLog) -> None:
        self._logs[log.identity.key] = log
        self._names[log.identity.directory_name] = log.identity.key

    def _take(self, key: ReplicaKey) -> PartitionLog:
        log = self._logs.pop(key)
        del self._names[log.identity.directory_name]
        return log

    def _created(self, key: ReplicaKey) -> None:
        self._watermarks.log_created(key)
        self._inventory.add([key])

    def _prepare_directory(self, identity: PartitionIdentity) -> None:
        """Ensure that the partition's directory is its own log, or does not exist."""
        path = self.root / identity.directory_name
        if path.exists():
            found = self._identity_or_stray(path)
            if found is not None and found != identity:
                self._move_to_stray(path, found.topic_id)
                self._lose_unreadable(found.key)
        if not path.exists():
            self._restore_stray(path, identity.key)

    def _lose_unreadable(self, key: ReplicaKey) -> None:
        """Note that a log that could not be read is set aside: the id stays its own."""
        own_id = self.unopened.set_aside(key)
        if own_id is not None:
            with STORAGE_ERRORS:
                self._inventory.lose([key], own_id, written=False)

    def _restore_stray(self, path: Path, key: ReplicaKey) -> None:
        """Rename the latest stray of a replica, if any, back to the partition's name."""
        with contextlib.suppress(FileNotFoundError):  # Its grace period ended just now.
            stray = latest_stray(self.root, key)
            if stray is not None:
                self._rename(stray, path)

    def _move_to_stray(self, path: Path, topic_id: str) -> None:
        with self._setting_aside:
            with STORAGE_ERRORS:
                os.utime(path)
            self._rename(path, free_name(path, topic_id, STRAY_SUFFIX))

    def _rename(self, path: Path, target: Path) -> None:
        """Rename durably; raise StorageFailed if that fails."""
        try:
            path.rename(target)
            fsync_path(self.root)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error) from error
