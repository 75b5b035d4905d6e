"""The errors of logs on disk.

    StorageFailed (leadline_client.errors, 50355)
    ├── DiskFull            nothing was appended; the log works again once there is space
    ├── NoDescriptor        no file could be opened; likewise
    ├── LogFailed           a write or an fsync failed: this log is never used again
    ├── LogClosed           the log was closed, moved away or deleted
    ├── DamagedBatch (leadline_client.errors, 50373)
    │   └── CorruptStoredBatch  a stored batch is damaged and is not served
    ├── CorruptFile         a checkpoint, index or snapshot is damaged
    └── WrongDirectory      the directory is in use, or belongs to another broker
    NotContiguous (Refused)  the batches do not continue the log

All of them are refusals: the operation had no effect.
"""

from __future__ import annotations

import errno
from typing import Final

from leadline_client.errors import DamagedBatch, Refused, StorageFailed


class DiskFull(StorageFailed):
    """There is no space for the batches; the file is unchanged."""


class NoDescriptor(StorageFailed):
    """The process, or the machine, can open no more files for now."""


class LogFailed(StorageFailed):
    """A write or an fsync failed, so the content of the disk is unknown.

    The kernel may drop the pages that it could not write and report the next fsync as a
    success. So the log stays failed until it is reopened with recovery.
    """


class LogClosed(StorageFailed):
    """The log was closed, moved away or deleted before the call."""


class CorruptStoredBatch(DamagedBatch):
    """A batch on disk fails its CRC, does not follow its predecessor, or cannot be read."""


class CorruptFile(StorageFailed):
    """A small file (checkpoint, index, snapshot, metadata) fails its checksum."""


class WrongDirectory(StorageFailed):
    """The log directory is locked by another process or belongs to another broker."""


class NotContiguous(Refused):
    """Batches do not begin at the log end, have a gap, or have decreasing leader epochs.

    Appending them would break the rule that (epoch, offset) identifies one record (rule R1).
    This is a bug of the caller.
    """

    code = 50050


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The error numbers of a full disk, an exhausted quota and a file that is too large."""
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""The error numbers of a process, or a machine, that can open no more files for now."""
LOST = frozenset({errno.EIO, errno.ENOENT})
"""The error numbers of a batch whose sector cannot be read, or whose file was removed."""


def storage_error(error: OSError) -> StorageFailed:
    """Return the error for a file operation that failed without changing anything."""
    if error.errno in NO_SPACE:
        return DiskFull(f"no space left: {error.strerror}")
    if error.errno in NO_DESCRIPTOR:
        return NoDescriptor(f"the log cannot be accessed: {error.strerror}")
    return StorageFailed(f"the log cannot be accessed: {error.strerror}")


class StorageErrors:
    """Raises a `storage_error` for the OSError of a block."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise storage_error(error) from error


class ReadErrors(StorageErrors):
    """The same for a block that reads batches: one that is `LOST` is a `CorruptStoredBatch`."""

    __slots__ = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in LOST:
            raise CorruptStoredBatch(f"a batch cannot be read: {error.strerror}") from error
        super().__exit__(kind, error, trace)


STORAGE_ERRORS: Final = StorageErrors()
READ_ERRORS: Final = ReadErrors()
