"""How much of a log the disk holds for certain, and forcing the rest to it."""

from __future__ import annotations

import threading
from pathlib import Path

from leadline_broker.adapters.log.errors import LogClosed, LogFailed
from leadline_broker.adapters.log.file_cache import FileCache, LogFile
from leadline_broker.adapters.log.syncing import Unsynced, sync
from leadline_broker.domain.epochs import EpochHistory
from leadline_client.errors import StorageFailed


class Durability:
    """The ends of a log and what of it is not synced yet.

    Appends mark under `marking`, which is held for moments. `flush` holds
    `flushing` for the length of the fsync, as does whoever removes or replaces
    files.

    Attributes:
        end_offset: the log end offset.
        durable_end_offset: everything before it is on the disk.
        closed: the log was closed; it refuses all further use.
        failure: set for ever when a write or an fsync fails.

    """

    __slots__ = (
        "_directory",
        "_epochs",
        "_files",
        "_unsynced",
        "closed",
        "durable_end_offset",
        "end_offset",
        "failure",
        "flushing",
        "marking",
    )

    def __init__(
        self, directory: Path, files: FileCache, epochs: EpochHistory, end_offset: int
    ) -> None:
        self.end_offset = end_offset
        self.durable_end_offset = end_offset
        self.failure: LogFailed | None = None
        self.marking = threading.Lock()
        self.flushing = threading.RLock()
        self._directory = directory
        self._files = files
        self._epochs = epochs
        self._unsynced = Unsynced()
        self.closed = False

    def require_usable(self) -> None:
        """Raise `LogFailed` or `LogClosed` if the log can no longer be used."""
        if self.failure is not None:
            raise LogFailed(self.failure.message)
        if self.closed:
            raise LogClosed(f"the log of {self._directory.name} is closed")

    def fail(self, error: OSError) -> LogFailed:
        """Mark the log failed for ever and return the error to raise."""
        self.failure = LogFailed(f"the log of {self._directory.name} failed: {error.strerror}")
        return self.failure

    def wrote(self, file: LogFile) -> None:
        """Take over a pin of the file: it stays open until it is synced."""
        with self.marking:
            if self._unsynced.file is None:
                self._unsynced.file = file
                return
        self._files.unpin(file)

    def entries_changed(self, *, new_directory: bool = False) -> None:
        """Note that files, or the directory itself, were created or removed."""
        with self.marking:
            self._unsynced.new_entries = True
            self._unsynced.new_directory |= new_directory

    def epochs_changed(self) -> None:
        """Note that the epoch history changed; the caller holds `marking`."""
        self._unsynced.epochs = True

    def cut(self, end_offset: int) -> None:
        """Note that the log was cut, or begins anew, at `end_offset`."""
        with self.marking:
            self._unsynced.new_entries = self._unsynced.epochs = True
            self.end_offset = end_offset
            self.durable_end_offset = min(self.durable_end_offset, end_offset)

    def flush(self) -> int:
        """Sync all that is appended so far; see `PartitionLog.flush`."""
        with self.flushing:
            with self.marking:
                self.require_usable()
                end = self.end_offset
                unsynced, self._unsynced = self._unsynced, Unsynced()
                epochs = self._epochs.entries() if unsynced.epochs else []
            try:
                sync(self._directory, unsynced, epochs)
            except OSError as error:
                self._put_back(unsynced)
                raise self.fail(error) from error
            except StorageFailed:
                self._put_back(unsynced)
                raise
            if unsynced.file is not None:
                self._files.unpin(unsynced.file)
            self.durable_end_offset = end
            return end

    def forget_file(self) -> None:
        """Let go of the unsynced file: it is about to be removed, or the log closed."""
        with self.marking:
            file, self._unsynced.file = self._unsynced.file, None
        if file is not None:
            self._files.unpin(file)

    def close(self) -> None:
        """Refuse all further use."""
        self.closed = True
        self.forget_file()

    def _put_back(self, unsynced: Unsynced) -> None:
        """Keep what could not be synced: for the next flush, or for `close` to unpin."""
        with self.marking:
            surplus = unsynced.file if self._unsynced.file is not None else None
            self._unsynced.absorb(unsynced)
        if surplus is not None:
            self._files.unpin(surplus)
