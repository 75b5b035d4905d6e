"""A broker's log directory: its partitions and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

from leadline_broker.adapters.log import root_files
from leadline_broker.adapters.log.committed_ends import CommittedEnds
from leadline_broker.adapters.log.deletions import Deletions, remove_deleted
from leadline_broker.adapters.log.directory_identity import DirectoryIdentity
from leadline_broker.adapters.log.errors import STORAGE_ERRORS, CorruptFile
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
from leadline_broker.adapters.log.set_aside import DELETE_SUFFIX, removed_as_empty
from leadline_broker.adapters.log.strays import Strays
from leadline_broker.adapters.log.unopened_logs import UnopenedLogs
from leadline_broker.domain.state import ReplicaKey
from leadline_client.errors import StorageFailed

_LOADERS = 4

Stored = tuple[str, str, int, PartitionLog, int]
"""Topic, topic id, partition, log and checkpointed high watermark of a replica."""


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
        strays: the directories that were set aside.
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
        self.strays = Strays(root)
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

    def take_opened(self) -> list[Stored]:
        """Take into use what `unopened` has opened again; the broker is about to register.

        Return these replicas, as `stored` does. One that ends below its high watermark has lost
        records, and gets an id of its own.
        """
        with STORAGE_ERRORS:
            self._inventory.lose(self.unopened.cut_short(), uuid4().hex, written=True)
        opened = self.unopened.opened()
        for log in opened:
            self._add(log)
        return self._with_high_watermarks(opened)

    def own_directory_ids(self) -> dict[ReplicaKey, str]:
        """Return the ids of the replicas that have lost their logs within this directory."""
        return self._inventory.own_directory_ids() | self.unopened.directory_ids

    def forget_lost(self, assigned: Collection[ReplicaKey]) -> None:
        """Forget lost logs of replicas that are not assigned to this broker any more."""
        with STORAGE_ERRORS:
            self._inventory.keep_only(assigned)

    def stored(self) -> list[Stored]:
        """Return the replicas whose logs are open.

        A high watermark without a checkpoint is the log start; none is beyond the log end.
        """
        return self._with_high_watermarks(self.logs())

    def _with_high_watermarks(self, logs: list[PartitionLog]) -> list[Stored]:
        known = self.high_watermarks() if logs else {}
        return [
            (
                log.identity.topic,
                *log.identity.key,
                log,
                max(log.log_start_offset, min(known.get(log.identity.key, 0), log.log_end_offset)),
            )
            for log in logs
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
            self.strays.add(log.directory, log.identity.topic_id)

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
        elif key in self.unopened.failures:
            directory = self.root / self.unopened.identities[key].directory_name
            own_id = self.unopened.give_up(key)
            self._watermarks.log_goes(key)
            self._deletions.begin(key, directory, own_id)
        return self._deletions.go_on(key)

    def is_unused(self, key: ReplicaKey) -> bool:
        """Return whether there is a log that is not open, or whose deletion has failed so far."""
        return key in self.unopened.failures or key in self._deletions.unfinished

    @property
    def unfinished(self) -> Set[ReplicaKey]:
        """The replicas whose deletions have failed so far."""
        return self._deletions.unfinished

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
                self.strays.add(path, "unknown")
            return None
        if identity.directory_name != path.name:
            self.strays.add(path, identity.topic_id)
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
                self._set_aside_unopened(path, found)
        if not path.exists():
            self.strays.restore(path, identity.key)

    def _set_aside_unopened(self, path: Path, found: PartitionIdentity) -> None:
        """Make a log a stray that is not in use; the id of one that is not open stays its own."""
        own_id = self.unopened.give_up(found.key)
        self._watermarks.log_goes(found.key)
        self.strays.add(path, found.topic_id)
        if own_id is not None:
            with STORAGE_ERRORS:
                self._inventory.lose([found.key], own_id, written=False)
