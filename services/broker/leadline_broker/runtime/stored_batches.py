"""The stored batches of a log, as repairs use them; an adapter implements the Protocol."""

from __future__ import annotations

from typing import Protocol


class StoredBatches(Protocol):
    """Checks the batches of a log on the disk, and replaces damaged ones.

    Only for the event loop's thread.
    """

    def check(self, offset: int) -> tuple[int, bool]:
        """Check some batches from `offset` on; return where it ended, and whether by damage.

        Raises:
            StorageFailed: the log cannot be used.

        """

    def repair(self, copies: bytes) -> int:
        """Replace damaged batches by whole batches of another replica; return how many.

        Raises:
            CorruptBatch, DamagedBatch: the copies are no sound batches of this log.
            StorageFailed: the disk does not take them.

        """
