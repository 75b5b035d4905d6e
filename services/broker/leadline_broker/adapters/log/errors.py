"""What can go wrong with a log on disk.

    StorageFailed (leadline_client.errors, 50355)
    ├── DiskFull            nothing was appended; the log goes on when there is room
    ├── LogFailed           a write or an fsync failed: this log is never used again
    ├── LogClosed           the log was closed, moved away or deleted
    ├── CorruptStoredBatch  a stored batch does not hold; it is not served
    ├── CorruptFile         a checkpoint, index or snapshot does not hold
    └── WrongDirectory      the directory is in use, or is another broker's
    NotContiguous (Refused)  the batches do not continue the log

They are refusals: whoever meets one knows that nothing took effect.
"""

from __future__ import annotations

from leadline_client.errors import Refused, StorageFailed


class DiskFull(StorageFailed):
    """No room for the batches. The file is as it was before the append."""


class LogFailed(StorageFailed):
    """A write or an fsync failed, so nobody knows what is on the disk.

    The kernel may drop the pages that it could not write and report the next
    fsync as a success; hence a failed log stays failed until it is opened anew
    and recovered.
    """


class LogClosed(StorageFailed):
    """The log was closed, moved away or deleted before the call."""


class CorruptStoredBatch(StorageFailed):
    """A batch on disk fails its CRC or does not follow its predecessor."""


class CorruptFile(StorageFailed):
    """A small file (checkpoint, index, snapshot, metadata) fails its checksum."""


class WrongDirectory(StorageFailed):
    """The log directory is locked by another process or belongs to another broker."""


class NotContiguous(Refused):
    """Batches do not begin at the log end, have a gap, or go back in leader epochs.

    Reaching the log they would break the rule that (epoch, offset) names one
    record for ever (R1); it is a fault of the caller.
    """

    code = 50050
