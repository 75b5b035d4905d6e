"""Which leader epochs a reader has read, and where a truncated log differs from that (KIP-320).

An epoch and an offset name one record for ever, and everything before it. So a log that has the
reader's last record has all that was read; if not, the point of divergence is found by comparing
epochs, as followers do it (rule R2). Pure: no IO.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from leadline_client.batch_header import BatchHeader
from leadline_client.wire import EpochEnd, LogPosition


class ReadHistory:
    """The leader epochs of the records up to `offset`, the offset of the next record.

    Of the first epoch only the last record need be known, as after a start at a committed offset.
    Invariant: epochs and start offsets increase, and all starts are below `offset`.
    """

    __slots__ = ("_epochs", "_starts", "offset")

    def __init__(self, position: LogPosition) -> None:
        self.offset = position.offset
        self._epochs: list[int] = []
        self._starts: list[int] = []
        if position.leader_epoch is not None and position.offset > 0:
            self._assign(position.leader_epoch, position.offset - 1)

    def epoch_before(self, offset: int) -> int | None:
        """Return the leader epoch of the record before `offset`; None if it was not read."""
        index = bisect_left(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 and offset <= self.offset else None

    def position_at(self, offset: int) -> LogPosition:
        """Return an offset up to which was read, with its leader epoch if it is known."""
        return LogPosition(offset, self.epoch_before(offset))

    def advance(self, headers: Iterable[BatchHeader], end: LogPosition) -> None:
        """Count batches that were read, up to the position `end`."""
        for header in headers:
            if header.next_offset > self.offset:
                self._assign(header.leader_epoch, max(header.base_offset, self.offset))
        self.offset = max(self.offset, end.offset)
        if end.leader_epoch is not None and self.epoch_before(self.offset) is None:
            self._assign(end.leader_epoch, self.offset - 1)

    def forget_before(self, log_start_offset: int) -> None:
        """Forget the epochs that ended before the log start: no log can be compared there."""
        keep = bisect_left(self._starts, log_start_offset) - 1
        if keep > 0:
            del self._epochs[:keep]
            del self._starts[:keep]

    def truncate(self, end: EpochEnd) -> bool:
        """Drop what a log lacks in which the last epoch that was read ends as `end` says.

        Returns whether anything was dropped. If so, and if the epoch of what is left is known, ask
        for the end of that one next.
        """
        last = self.epoch_before(self.offset)
        if end.epoch == last and end.end_offset >= self.offset:
            return False
        kept = bisect_right(self._epochs, end.epoch)
        # Where the log has only later epochs, it begins at `end_offset`.
        start = self._starts[kept] if end.epoch >= 0 and kept < len(self._starts) else self.offset
        self.offset = min(start, end.end_offset)
        kept = min(kept, bisect_left(self._starts, self.offset))
        del self._epochs[kept:]
        del self._starts[kept:]
        return True

    def copy(self) -> ReadHistory:
        """Return a copy, to find a divergence without moving the reader."""
        history = ReadHistory(LogPosition(self.offset))
        history._epochs, history._starts = self._epochs.copy(), self._starts.copy()
        return history

    def _assign(self, epoch: int, start_offset: int) -> None:
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(start_offset)
