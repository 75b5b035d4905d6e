"""The leader epoch history of a log: which epoch wrote which offsets.

Two replicas compare their histories to find where their logs diverge, without using
the high watermark (rule R2; KIP-101, KIP-279).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

NO_EPOCH = -1
"""The epoch of an empty log."""


class EpochHistory:
    """The first offset that each leader epoch wrote, oldest first.

    Invariant: epochs strictly increase and start offsets strictly increase.
    An epoch that wrote nothing has no entry.
    """

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def latest(self) -> int:
        """The epoch of the last batch, or `NO_EPOCH` for an empty log."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) pairs, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that a batch of `epoch` begins at `start_offset`.

        Raises:
            ValueError: the epoch is older than the latest, or a newer epoch
                does not start after it: either would break the invariant.

        """
        if epoch == self.latest:
            return
        if self._epochs and (epoch < self._epochs[-1] or start_offset <= self._starts[-1]):
            raise ValueError(
                f"epoch {epoch} at offset {start_offset} after epoch {self._epochs[-1]}"
                f" at offset {self._starts[-1]}"
            )
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest epoch not above `epoch`, the offset where it ends).

        The end is exclusive. Without such an epoch the result is (`NO_EPOCH`, first offset of
        the log), or (`NO_EPOCH`, `log_end_offset`) for an empty log.
        """
        after = bisect_right(self._epochs, epoch)
        end = self._starts[after] if after < len(self._starts) else log_end_offset
        return (self._epochs[after - 1] if after else NO_EPOCH), end

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, or `NO_EPOCH` before the first entry."""
        after = bisect_right(self._starts, offset)
        return self._epochs[after - 1] if after else NO_EPOCH

    def has_read(
        self, offset: int, epoch: int, *, log_start_offset: int, log_end_offset: int
    ) -> bool:
        """Tell whether a reader at `offset`, whose last record is of `epoch`, has read this log.

        That record and its epoch name everything before it too. Of a record that retention has
        removed nothing is known, and the log does not contradict it.
        """
        if offset > log_end_offset:
            return False
        return offset <= log_start_offset or self.epoch_at(offset - 1) == epoch

    def truncate_to(self, end_offset: int) -> None:
        """Remove the epochs that start at or after `end_offset` (the new log end)."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    def advance_start(self, log_start_offset: int) -> None:
        """Remove the epochs that end at or before `log_start_offset` (retention)."""
        keep = bisect_right(self._starts, log_start_offset) - 1
        if keep >= 0:
            del self._epochs[:keep]
            del self._starts[:keep]
            self._starts[0] = max(self._starts[0], log_start_offset)
