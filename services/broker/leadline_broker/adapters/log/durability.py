"""Writing a log to the disk: all-or-nothing appends, and how much of the log is durable."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from leadline_broker.adapters.log.checked_files import fsync_path
from leadline_broker.adapters.log.epoch_file import write_epochs
from leadline_broker.adapters.log.errors import (
    NO_DESCRIPTOR,
    NO_SPACE,
    STORAGE_ERRORS,
    LogClosed,
    LogFailed,
    storage_error,
)
from leadline_broker.adapters.log.file_cache import FileCache, LogFile
from leadline_broker.adapters.log.kernel_fsyncs import StartedFsync
from leadline_broker.adapters.log.layout import METADATA_FILE
from leadline_broker.adapters.log.snapshots import sync_snapshot
from leadline_broker.adapters.log.writes import append_bytes, write_all
from leadline_broker.domain.epochs import EpochHistory
from leadline_client.batch_header import Buffer
from leadline_client.errors import StorageFailed

OnFlushed = Callable[[StorageFailed | None], None]
"""Learns of the end of a flush: the log's new durable end can be read, or why there is none."""


@dataclass(slots=True)
class Unsynced:
    """The parts of a log that have changed since the last sync.

    Attributes:
        files: the segments with unsynced bytes, the oldest first; pinned, so that they stay open.
        new_directory: the directory and its metadata file are new.
        new_entries: files were created or removed.
        epochs: the epoch history changed.

    """

    files: list[LogFile] = field(default_factory=list)
    new_directory: bool = False
    new_entries: bool = False
    epochs: bool = False

    def absorb(self, older: Unsynced) -> list[LogFile]:
        """Add what a failed sync did not write; return the files that are pinned twice now."""
        surplus = [file for file in older.files if file in self.files]
        self.files = older.files + [file for file in self.files if file not in surplus]
        self.new_directory |= older.new_directory
        self.new_entries |= older.new_entries
        self.epochs |= older.epochs
        return surplus


class Noting:
    """Holds `marking`; an exception fails the log.

    What memory has of the file is not true any more then: the next batch would get the same offsets
    as one that is noted in part, and recovery would cut the log there.
    """

    __slots__ = ("_durability",)

    def __init__(self, durability: Durability) -> None:
        self._durability = durability

    def __enter__(self) -> None:
        self._durability.marking.acquire()

    def __exit__(self, _: object, cause: BaseException | None, __: object) -> None:
        if cause is not None:
            self._durability.fail(f"an append broke off ({cause!r})")
        self._durability.marking.release()


class Placing:
    """The block that finds where to append: nothing is written if it raises StorageFailed.

    If the files or the directory are gone, no append can succeed any more, and the log fails.
    """

    __slots__ = ("_durability",)

    def __init__(self, durability: Durability) -> None:
        self._durability = durability

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, FileNotFoundError):
            raise self._durability.fail(cause) from cause
        STORAGE_ERRORS.__exit__(kind, cause, trace)


@dataclass(eq=False, slots=True)
class Durability:
    """The end offsets of a log, and the parts of it that are not synced yet.

    Appends record changes under the lock `marking`, which is held only briefly. `flush`, and
    every method that removes or replaces files, does so in `exclusive`. A flush that runs by itself
    (`begin_flush`) counts as being in there until it has ended.

    Attributes:
        on_created: called with the first sync of a new log, before anything counts as
            durable; it may raise OSError.
        end_offset: the log end offset.
        durable_end_offset: everything before it is on the disk.
        closed: the log was closed and refuses all further use.
        failure: set permanently when a write or an fsync fails.

    """

    directory: Path
    files: FileCache
    epochs: EpochHistory
    end_offset: int
    on_created: Callable[[], None] = lambda: None
    durable_end_offset: int = field(init=False)
    failure: LogFailed | None = field(default=None, init=False)
    marking: threading.Lock = field(default_factory=threading.Lock, init=False)
    closed: bool = field(default=False, init=False)
    _flushing: threading.RLock = field(default_factory=threading.RLock, init=False)
    _begun: StartedFsync | None = field(default=None, init=False)
    _unsynced: Unsynced = field(default_factory=Unsynced, init=False)

    def __post_init__(self) -> None:
        self.durable_end_offset = self.end_offset

    @property
    def has_unsynced(self) -> bool:
        """Whether any part of the log has changed since the last sync."""
        return self.durable_end_offset < self.end_offset or self._unsynced != Unsynced()

    def require_usable(self) -> None:
        """Raise `LogFailed` or `LogClosed` unless the log can be used."""
        if self.failure is not None:
            raise LogFailed(self.failure.message)
        if self.closed:
            raise LogClosed(f"the log of {self.directory.name} is closed")

    def fail(self, cause: OSError | str) -> LogFailed:
        """Mark the log as failed permanently and return the error to raise."""
        reason = cause if isinstance(cause, str) else cause.strerror
        self.failure = LogFailed(f"the log of {self.directory.name} failed: {reason}")
        return self.failure

    def noting(self) -> Noting:
        """Return the block in which an append that is in the file is noted."""
        return Noting(self)

    def placing(self) -> Placing:
        """Return the block that finds where to append."""
        return Placing(self)

    def append(self, file: LogFile, data: Buffer, position: int) -> None:
        """Write at `position`, the end of a file; see `append_bytes`. A failure is final."""
        with self.placing():
            fd = self.files.pin(file)
        try:
            append_bytes(fd, data, position)
        except OSError as error:
            raise self.fail(error) from error
        finally:
            self.wrote(file)

    def overwrite(self, file: LogFile, data: Buffer, position: int) -> None:
        """Replace bytes that a disk has damaged or lost; the next flush makes the new ones durable.

        Raises:
            StorageFailed: some of the bytes are not replaced.

        """
        with STORAGE_ERRORS:
            fd = self.files.pin(file)
            try:
                write_all(fd, data, position)
            finally:
                self.wrote(file)

    def wrote(self, file: LogFile) -> None:
        """Take over the caller's pin of the file, which stays open until it is synced."""
        with self.marking:
            if file not in self._unsynced.files:
                self._unsynced.files.append(file)
                return
        self.files.unpin(file)

    def entries_changed(self, *, new_directory: bool = False) -> None:
        """Record that files, or the directory itself, were created or removed."""
        with self.marking:
            self._unsynced.new_entries = True
            self._unsynced.new_directory |= new_directory

    def epochs_changed(self) -> None:
        """Record that the epoch history changed; the caller holds `marking`."""
        self._unsynced.epochs = True

    def truncated(self, end_offset: int) -> None:
        """Record that the log was truncated to, or restarted at, `end_offset`."""
        with self.marking:
            self._unsynced.new_entries = self._unsynced.epochs = True
            self.end_offset = end_offset
            self.durable_end_offset = min(self.durable_end_offset, end_offset)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let no other thread, and no flush that runs by itself, be within such a block.

        Nobody waits for a flush while holding the lock: the thread that learns of the flush's end
        may be waiting for it.
        """
        while True:
            begun = self._begun
            if begun is not None:
                begun.wait()
            with self._flushing:
                if self._begun is None:
                    yield
                    return

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Be exclusive while files are removed or replaced: an OSError on the way is final."""
        with self.exclusive():
            self.require_usable()
            try:
                yield
            except OSError as error:
                raise self.fail(error) from error

    def begin_flush(self, on_flushed: OnFlushed) -> bool:
        """See `PartitionLog.begin_flush`."""
        if self.files.fsyncs is None or not self._flushing.acquire(blocking=False):
            return False
        try:
            with self.marking:
                file, end = self._file_to_flush(), self.end_offset
                if file is None:
                    return False
                self._unsynced = Unsynced()
            on_done = partial(self._end_flush, file, end, on_flushed)
            try:
                self._begun = self.files.fsyncs.start(file.fd, on_done)
            finally:
                if self._begun is None:
                    self._put_back(Unsynced([file]))
            return self._begun is not None
        finally:
            self._flushing.release()

    def _file_to_flush(self) -> LogFile | None:
        """Return the file whose content is all that is unsynced, if a flush of it may begin."""
        what = self._unsynced
        others = what.new_directory or what.new_entries or what.epochs
        if others or len(what.files) != 1 or what.files[0].provisional is not None:
            return None
        usable = self.failure is None and not self.closed and self._begun is None
        return what.files[0] if usable else None

    def _end_flush(
        self, file: LogFile, end: int, on_flushed: OnFlushed, error: OSError | None
    ) -> None:
        """End the flush that was begun. Nothing can have truncated or closed the log meanwhile.

        No thread flushes before the outcome is noted: it would retry the fsync that has failed, or
        its durable end would be replaced by this lower one.
        """
        try:
            failure = self._note_end(file, end, error)
        finally:
            self._begun = None
        on_flushed(failure)

    def _note_end(self, file: LogFile, end: int, error: OSError | None) -> LogFailed | None:
        """Return why the log has failed: a callback has no caller to raise that to."""
        if error is None:
            error = _removal_of(file)
        if error is not None:
            failure = self.fail(error)
            self._put_back(Unsynced([file]))
            return failure
        try:
            self.files.unpin(file)
        except OSError as problem:
            return self.fail(problem)
        self.durable_end_offset = end
        return None

    def flush(self) -> int:
        """See `PartitionLog.flush`."""
        with self.exclusive():
            with self.marking:
                self.require_usable()
                end = self.end_offset
                unsynced, self._unsynced = self._unsynced, Unsynced()
                epochs = self.epochs.entries() if unsynced.epochs else []
            try:
                _sync(self.directory, unsynced, epochs)
                if unsynced.new_directory:
                    self._report_creation()
            except OSError as error:
                self._put_back(unsynced)
                if error.errno in NO_DESCRIPTOR:  # No fsync fails for that: nothing was tried.
                    raise storage_error(error) from error
                raise self.fail(error) from error
            except BaseException:  # The next flush has to sync it, whatever broke this one off.
                self._put_back(unsynced)
                raise
            for file in unsynced.files:
                self.files.unpin(file)
            self.durable_end_offset = end
            return end

    def forget_files(self) -> None:
        """Unpin the unsynced files, before they are removed, truncated or closed."""
        with self.marking:
            forgotten, self._unsynced.files = self._unsynced.files, []
        for file in forgotten:
            self.files.unpin(file)

    def close(self) -> None:
        """Refuse all further use."""
        self.closed = True
        self.forget_files()

    def _report_creation(self) -> None:
        try:
            self.on_created()
        except OSError as error:
            if error.errno in NO_SPACE:  # It can be reported again, with the next sync.
                raise storage_error(error) from error
            raise

    def _put_back(self, unsynced: Unsynced) -> None:
        """Restore what could not be synced, for the next flush or for `close` to unpin."""
        with self.marking:
            surplus = self._unsynced.absorb(unsynced)
        for file in surplus:
            self.files.unpin(file)


def _sync(directory: Path, unsynced: Unsynced, epochs: list[tuple[int, int]]) -> None:
    """Fsync contents first, then the directory entries that refer to them.

    Raises:
        DiskFull: there is no space for the epoch file; the whole sync may be retried.
        OSError: a sync failed; nothing is known to be durable, and it must not be retried, unless
            there was no descriptor for it.

    """
    if unsynced.epochs:
        _write_epochs(directory, epochs)
    for file in unsynced.files:
        os.fdatasync(file.fd)
    for file in unsynced.files:
        if file.provisional is not None:
            sync_snapshot(file.path)
        unsynced.new_entries |= file.settle()  # All before it are durable now.
    for removal in filter(None, map(_removal_of, unsynced.files)):
        raise removal
    if unsynced.new_directory:
        fsync_path(directory / METADATA_FILE)
    if unsynced.new_directory or unsynced.new_entries or unsynced.epochs:
        fsync_path(directory)
    if unsynced.new_directory:
        fsync_path(directory.parent)


def _removal_of(file: LogFile) -> OSError | None:
    """Return the error of a file that somebody has removed: what is in it ends with the process."""
    if not file.is_removed and not os.fstat(file.fd).st_nlink:
        return FileNotFoundError(errno.ENOENT, "its file was removed")
    return None


def _write_epochs(directory: Path, epochs: list[tuple[int, int]]) -> None:
    try:
        write_epochs(directory, epochs)
    except OSError as error:
        # The old file is unchanged, and a retry writes a new one. So a full disk here does
        # not count as a failed fsync of the log.
        if error.errno in NO_SPACE:
            raise storage_error(error) from error
        raise
