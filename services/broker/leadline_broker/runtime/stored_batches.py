"""The stored batches of a log, as repairs use them; an adapter implements the Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SegmentScrub(Protocol):
    """Reads a closed segment from the disk, part by part. For any thread, one at a time.

    Attributes:
        offset: where the next part begins.
        has_ended: whether all batches were checked.

    """

    offset: int

    @property
    def has_ended(self) -> bool: ...  # noqa: D102 - see above

    def check_part(self) -> int:
        """Check the next batches; return their bytes.

        Raises:
            DamagedBatch: the batch at `offset` is damaged, or was removed meanwhile.
            StorageFailed: the file cannot be read, or was removed meanwhile.

        """


class StoredBatches(Protocol):
    """Checks the batches of a log on the disk, and replaces damaged ones.

    Only for the event loop's thread.
    """

    def closed(self) -> Sequence[SegmentScrub]:
        """Return what reads each closed segment.

        Raises:
            StorageFailed: the log cannot be used.

        """

    def check(self, offset: int) -> tuple[int, bool]:
        """Check some batches from `offset` on; return where it ended, and whether by damage.

        Raises:
            StorageFailed: the log cannot be used.

        """

    def read_unread(self) -> bool:
        """Learn the producers of some batches that were unread; return whether any are left.

        Raises:
            DamagedBatch: they are damaged.
            StorageFailed: they cannot be read, or the log cannot be used.

        """

    def repair(self, copies: bytes) -> int:
        """Replace damaged batches by whole batches of another replica; return how many.

        Raises:
            CorruptBatch, DamagedBatch: the copies are no sound batches of this log.
            StorageFailed: the disk does not take them.

        """
