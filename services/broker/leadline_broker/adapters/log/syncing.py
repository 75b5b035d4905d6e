"""Writing to a segment all or nothing, and forcing what was written to the disk."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from leadline_broker.adapters.log.durable import fsync_path
from leadline_broker.adapters.log.epoch_file import write_epochs
from leadline_broker.adapters.log.errors import DiskFull
from leadline_broker.adapters.log.file_cache import LogFile
from leadline_broker.adapters.log.layout import METADATA_FILE
from leadline_client.batches import Buffer
from leadline_client.errors import StorageFailed

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(slots=True)
class Unsynced:
    """What of a log has changed since it was last forced to the disk.

    Attributes:
        file: the segment with unsynced bytes, pinned so that it stays open.
        new_directory: the directory itself is new, and so is its metadata file.
        new_entries: files were created or removed.
        epochs: the epoch history changed.

    """

    file: LogFile | None = None
    new_directory: bool = False
    new_entries: bool = False
    epochs: bool = False

    def absorb(self, older: Unsynced) -> None:
        """Take over what an attempt to sync left undone."""
        self.file = self.file or older.file
        self.new_directory |= older.new_directory
        self.new_entries |= older.new_entries
        self.epochs |= older.epochs


def append_bytes(fd: int, data: Buffer, position: int) -> None:
    """Write `data` at the end of a file, `position`, or leave the file as it was.

    Raises:
        DiskFull: there is no room; nothing was written.
        OSError: the disk refuses, and what the file holds now is unknown.

    """
    rest = memoryview(data)
    at = position
    try:
        while rest:
            written = os.pwrite(fd, rest, at)
            rest = rest[written:]
            at += written
    except OSError as error:
        os.ftruncate(fd, position)
        if error.errno in _NO_ROOM:
            raise storage_error(error) from error
        raise


def sync(directory: Path, unsynced: Unsynced, epochs: list[tuple[int, int]]) -> None:
    """Force it all to the disk: contents first, then the names that lead to them.

    Raises:
        DiskFull: no room for the epoch file; all of it may be tried again.
        OSError: any of it failed; none of it may be counted on, or tried again.

    """
    if unsynced.epochs:
        _write_epochs(directory, epochs)
    if unsynced.file is not None:
        os.fdatasync(unsynced.file.fd)
    if unsynced.new_directory:
        fsync_path(directory / METADATA_FILE)
    if unsynced.new_directory or unsynced.new_entries or unsynced.epochs:
        fsync_path(directory)
    if unsynced.new_directory:
        fsync_path(directory.parent)


def storage_error(error: OSError) -> StorageFailed:
    """Return the error for a file operation that failed before it changed anything."""
    if error.errno in _NO_ROOM:
        return DiskFull(f"no room left: {error.strerror}")
    return StorageFailed(f"the log cannot be accessed: {error.strerror}")


def _write_epochs(directory: Path, epochs: list[tuple[int, int]]) -> None:
    try:
        write_epochs(directory, epochs)
    except OSError as error:
        # The old file is untouched and the new one would be written afresh, so a
        # full disk here is no failed fsync of the log: it may be tried again.
        if error.errno in _NO_ROOM:
            raise storage_error(error) from error
        raise
