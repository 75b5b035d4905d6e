"""Checking the stored batches of a log, and replacing damaged ones by copies from a replica.

Replicas have the same bytes, because followers store what the leader has stamped (rule R1). So a
copy is exactly as long as what it replaces, and everything behind it stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from leadline_broker.adapters.log.durability import Durability
from leadline_broker.adapters.log.errors import READ_ERRORS
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.producer_replay import read_again
from leadline_broker.adapters.log.recovery import LogState
from leadline_broker.adapters.log.scan import check_stored
from leadline_broker.adapters.log.segment import Segment
from leadline_broker.adapters.log.segment_scrub import SegmentScrub
from leadline_broker.domain.epochs import EpochHistory
from leadline_client.batch_header import BatchHeader, parse_headers

_AT_ONCE: Final = 1 << 20
_MOST_AT_ONCE: Final = 400
"""How many bytes, and how many batches, are checked in one turn of the event loop: some 10 ms."""


@dataclass(frozen=True, slots=True)
class StoredBatches:
    """Implements `runtime.stored_batches.StoredBatches`; owned by the thread that owns the log."""

    state: LogState
    durability: Durability
    files: FileCache

    def closed(self) -> list[SegmentScrub]:
        """Return what reads each closed segment; see `SegmentScrub`.

        Raises:
            StorageFailed: the log cannot be used.

        """
        self.durability.require_usable()
        closed = self.state.segments[:-1]
        epochs = EpochHistory(self.state.epochs.entries() if closed else ())
        return [
            SegmentScrub(self.files, one.file, one.size, one.base_offset, one.next_offset, epochs)
            for one in closed
        ]

    def check(self, offset: int) -> tuple[int, bool]:
        """Check some batches of one segment, from shortly before `offset` on.

        Returns:
            The offset behind them, and False; or the offset of the first damaged one, and True.

        """
        self.durability.require_usable()
        if not self.state.segments:
            return self.state.end_offset, False
        segment, left = self._segment(offset), _AT_ONCE
        with READ_ERRORS:
            self._require_file(segment)
            for expected, _, span in segment.walk(offset, self.state.epochs):
                if span is None:
                    return expected, True
                left -= max(span.size, _AT_ONCE // _MOST_AT_ONCE)
                if left <= 0 and span.next_offset > offset:
                    return span.next_offset, False
        return segment.next_offset, False

    def read_unread(self) -> bool:
        """Learn the producers of some batches that were unread; return whether any are left.

        Raises:
            CorruptStoredBatch: they are damaged.
            StorageFailed: they cannot be read.

        """
        self.durability.require_usable()
        producers = self.state.producers
        if producers.unread:
            with READ_ERRORS:
                read_again(producers, self.state.segments, self.files)
        return bool(producers.unread)

    def repair(self, copies: bytes) -> int:
        """Replace the damaged batch at the offset of the first copy, and those behind it.

        Stops before the first batch that is sound. Returns how many were replaced: 0 if the first
        one is not damaged, or if its copy does not fit.

        All are written at once. A page that cannot be read can be written only as a whole, and each
        batch that has a part in it is damaged.

        Raises:
            CorruptBatch, CorruptStoredBatch: the copies are damaged, or of other leader epochs.
            StorageFailed: the disk does not take them; what was damaged may still be.

        """
        self.durability.require_usable()
        headers = list(parse_headers(copies))
        if not headers or not self.state.segments:
            return 0
        check_stored(copies, headers[0].base_offset, self.state.epochs)
        segment = self._segment(headers[0].base_offset)
        position = self._damaged_at(segment, headers[0].base_offset)
        fitting = [] if position is None else self._fitting(segment, position, headers)
        if position is None or not fitting:
            return 0
        end = fitting[-1].position + fitting[-1].size
        self.durability.overwrite(segment.file, memoryview(copies)[:end], position)
        if segment is not self.state.segments[-1]:
            segment.extend_to(position + end)
            segment.reindex()
        return len(fitting)

    def _require_file(self, segment: Segment) -> None:
        """Create the file of a closed segment that was removed: all of its batches are lost."""
        try:
            with self.files.using(segment.file):
                return
        except FileNotFoundError:
            if segment is self.state.segments[-1]:
                raise
        self.files.create(segment.file)
        self.durability.entries_changed()

    def _segment(self, offset: int) -> Segment:
        return self.state.segments[max(0, self.state.segment_number(offset))]

    def _damaged_at(self, segment: Segment, offset: int) -> int | None:
        """Return the position of a damaged batch, None if the one at `offset` is none."""
        with READ_ERRORS:
            for expected, position, span in segment.walk(offset, self.state.epochs):
                if expected >= offset or span is None:
                    return position if expected == offset and span is None else None
        return None

    def _fitting(
        self, segment: Segment, position: int, copies: Sequence[BatchHeader]
    ) -> list[BatchHeader]:
        """Return the copies that can replace what is damaged from a position on."""
        found: list[BatchHeader] = []
        with READ_ERRORS:
            for copy in copies:
                at = position + copy.position
                is_sound = segment.is_sound(at, copy.base_offset, self.state.epochs)
                if is_sound or not segment.fits(copy, at):
                    break
                found.append(copy)
        return found
