"""One segment file: finding and reading whole batches in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from leadline_broker.adapters.log.errors import LOST, NO_SPACE, CorruptFile, CorruptStoredBatch
from leadline_broker.adapters.log.file_cache import FileCache, LogFile
from leadline_broker.adapters.log.index import (
    NO_TIMESTAMP,
    SparseIndex,
    read_index,
    write_index,
)
from leadline_broker.adapters.log.layout import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PROVISIONAL_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_name,
)
from leadline_broker.adapters.log.scan import (
    BatchSpan,
    check_stored,
    size_at,
    sound_batch,
    spans,
)
from leadline_broker.domain.epochs import EpochHistory
from leadline_client.batch_header import HEADER_BYTES, BatchHeader

_REMEMBERED: Final = 4
"""How many of the latest batches a read finds without a scan: followers read them, one by one."""


class Segment:
    """Contiguous batches in one file.

    The index of a closed segment is loaded, or rebuilt, when it is first needed. The latest batches
    that were appended are remembered while the segment grows (`_latest`): they are contiguous, and
    the last one ends where the segment does. An index that is `_cut` ends at a damaged batch.

    Attributes:
        base_offset: the first offset, which also names the file.
        next_offset: the offset after the last batch.
        size: bytes of whole batches in the file.
        trusted_from: this process has checked the batches from this position on, and does
            not check them again when they are read. In a closed segment every batch is
            checked, because its bytes may come from the disk again.

    """

    __slots__ = (
        "_cut",
        "_files",
        "_index",
        "_interval",
        "_latest",
        "_max_timestamp",
        "base_offset",
        "file",
        "next_offset",
        "size",
        "trusted_from",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        files: FileCache,
        interval: int,
        *,
        provisional: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.trusted_from = 0
        path = directory / offset_name(base_offset, LOG_SUFFIX)
        self.file = LogFile(path, path.with_suffix(PROVISIONAL_SUFFIX) if provisional else None)
        self._files = files
        self._interval = interval
        self._index: SparseIndex | None = SparseIndex(interval)
        self._max_timestamp: int | None = NO_TIMESTAMP
        self._latest: tuple[BatchSpan, ...] = ()
        self._cut = False

    @classmethod
    def existing(
        cls, directory: Path, base_offset: int, next_offset: int, files: FileCache, interval: int
    ) -> Segment:
        """Return a segment that exists on disk and ends where the next one begins."""
        segment = cls(directory, base_offset, files, interval)
        segment.next_offset = next_offset
        segment.size = segment.trusted_from = segment.file.path.stat().st_size
        segment.release_index()
        segment._max_timestamp = None
        return segment

    @property
    def index(self) -> SparseIndex:
        """The index, loaded from its files if they are valid, else rebuilt from the batches."""
        if self._index is None:
            try:
                self.load_index()
            except CorruptFile:
                self._rebuild_index()
        return self._index or SparseIndex(self._interval)

    @property
    def max_timestamp(self) -> int:
        """The latest record timestamp (ms), or `NO_TIMESTAMP`."""
        if self._max_timestamp is None:
            self.index  # noqa: B018 - loading the index sets it
        return NO_TIMESTAMP if self._max_timestamp is None else self._max_timestamp

    @property
    def latest_ms(self) -> int:
        """The time (ms) from which retention counts its age, or `NO_TIMESTAMP`.

        It is the latest record timestamp. While that of damaged batches is unknown, it is not
        before the last change of the file.
        """
        latest = self.max_timestamp
        return max(latest, self.file.path.stat().st_mtime_ns // 1_000_000) if self._cut else latest

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether `max_timestamp` needs no reading."""
        return self._max_timestamp is not None

    def learn_max_timestamp(self) -> None:
        """Read the latest timestamp of a closed segment, and do not keep its index."""
        self.index  # noqa: B018 - loading the index sets it
        self.release_index()

    def load_index(self) -> None:
        """Load index, end and latest timestamp from the index files.

        Raises:
            CorruptFile: they are missing or damaged, or do not match the segment.

        """
        index, next_offset, max_timestamp = read_index(self.file.path, self._interval, self.size)
        if self.next_offset not in {self.base_offset, next_offset}:
            raise CorruptFile(f"the index of {self.file.path.name} ends at {next_offset}")
        self._index, self.next_offset, self._max_timestamp = index, next_offset, max_timestamp

    def _rebuild_index(self) -> None:
        """Index the batches before the first one that is damaged or lost; they can be read."""
        self.clear()
        end_offset = self.base_offset
        try:
            with self._files.using(self.file) as fd:
                for span in spans(fd, 0, self.size, self.base_offset):
                    self._add(span.base_offset, span.position, span.max_timestamp)
                    end_offset = span.next_offset
        except CorruptStoredBatch:
            pass
        except OSError as error:
            if error.errno not in LOST:
                self._index = self._max_timestamp = None  # They are incomplete.
                raise
        self._cut = end_offset != self.next_offset

    def reindex(self) -> None:
        """Load or rebuild the index of a closed segment again: it may have ended at damage."""
        self.release_index()
        self._max_timestamp, self._cut = None, False

    def release_index(self) -> None:
        """Release the index of a closed segment; it is loaded again when it is needed."""
        self._index = None

    def clear(self) -> None:
        """Start an empty index, for `note` to fill."""
        self._index = SparseIndex(self._interval)
        self._max_timestamp = NO_TIMESTAMP
        self._latest = ()

    def note(self, header: BatchHeader, position: int) -> None:
        """Record the segment's next batch, which is in the file at `position`."""
        self._add(header.base_offset, position, header.max_timestamp)
        self.size = position + header.size
        self.next_offset = header.next_offset
        span = BatchSpan(
            position,
            header.size,
            header.base_offset,
            header.next_offset,
            header.leader_epoch,
            header.max_timestamp,
        )
        self._latest = (*self._latest[1 - _REMEMBERED :], span)

    def _add(self, offset: int, position: int, max_timestamp: int) -> None:
        latest_before = self.max_timestamp
        self.index.add(offset, position, latest_before)
        self._max_timestamp = max(latest_before, max_timestamp)

    def seal(self) -> None:
        """Close the segment: write its index files, and check its batches from now on."""
        write_index(self.file.path, self.index, self.size, self.next_offset, self.max_timestamp)
        self.trusted_from = self.size
        self._latest = ()

    def remove_index_files(self) -> None:
        """Remove the index files before the segment changes."""
        self.file.path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
        self.file.path.with_suffix(TIME_INDEX_SUFFIX).unlink(missing_ok=True)

    def set_aside(self) -> Path:
        """Delete the segment from the log, but only rename its file, which is returned.

        A full disk may have no room for the longer name. Then the file is removed at once.
        """
        self.file.is_removed = True
        self.remove_index_files()
        self._files.close(self.file)
        path = self.file.location
        renamed = path.with_name(path.name + DELETED_SUFFIX)
        try:
            return path.rename(renamed)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            path.unlink()
            return renamed

    def boundary(self, offset: int) -> tuple[int, int]:
        """Return (position, offset) of the last valid batch boundary at or before `offset`."""
        entry = self.index.entry_for_offset(offset)
        found = (0, self.base_offset)
        try:
            for span in self.spans(max(entry, 0)):
                found = (span.position, span.base_offset)
                if span.next_offset > offset:
                    break
                found = (span.end, span.next_offset)
        except CorruptStoredBatch:
            return found  # Truncating there repairs a damaged segment.
        return found

    def truncate_at(self, position: int, offset: int) -> None:
        """Drop the batches from a boundary on; the caller must truncate the file."""
        index = self.index
        index.truncate_to(position)
        self.size, self.next_offset = position, offset
        self.trusted_from = min(self.trusted_from, position)
        self._latest, self._cut = (), False
        latest = index.times[-1] if index.times else NO_TIMESTAMP
        for kept in self.spans(len(index.times) - 1) if index.times else ():
            latest = max(latest, kept.max_timestamp)
        self._max_timestamp = latest

    def position_of(self, offset: int) -> int:
        """Return a file position at or shortly before `offset`, or the size past the end."""
        if offset >= self.next_offset:
            return self.size
        entry = self.index.entry_for_offset(offset)
        return self.index.positions[entry] if entry >= 0 else 0

    def find(self, offset: int) -> BatchSpan:
        """Return the batch that holds `offset`, which the segment must contain.

        Raises:
            CorruptStoredBatch: a batch before it is damaged.

        """
        for span in reversed(self._latest):
            if span.base_offset <= offset < span.next_offset:
                return span
        for span in self.spans(self.index.entry_for_offset(offset)):
            if span.next_offset > offset:
                return span
        raise CorruptStoredBatch(f"{self.file.path.name} ends before offset {offset}")

    def find_timestamp(self, timestamp: int) -> Iterator[BatchSpan]:
        """Yield the batches whose latest timestamp (ms) is at or after `timestamp`."""
        if self.max_timestamp < timestamp and not self._cut:
            return
        for span in self.spans(self.index.entry_for_timestamp(timestamp)):
            if span.max_timestamp >= timestamp:
                yield span

    def read(self, offset: int, max_bytes: int, end_offset: int, epochs: EpochHistory) -> bytes:
        """Return whole batches from the one that holds `offset`, none past `end_offset`.

        Returns at least one batch, even if it is larger than `max_bytes`.

        Raises:
            CorruptStoredBatch: the bytes on disk differ from what was appended.

        """
        first = self.find(offset)
        limit = self.size if end_offset >= self.next_offset else self.find(end_offset).position
        if limit - first.position > max_bytes:
            limit = self._last_end_within(first, first.position + max_bytes)
        data = self.read_bytes(first.position, max(limit, first.end))
        if first.position < self.trusted_from:
            end = check_stored(data, first.base_offset, epochs)
            if limit == self.size and end != self.next_offset:
                raise CorruptStoredBatch(
                    f"{self.file.path.name} ends at {end} instead of {self.next_offset}"
                )
        return data if first.next_offset <= end_offset else b""

    def read_bytes(self, position: int, end: int) -> bytes:
        """Return the bytes between two file positions."""
        with self._files.using(self.file) as fd:
            data = os.pread(fd, end - position, position)
        if len(data) != end - position:
            raise CorruptStoredBatch(f"{self.file.path.name} is shorter than its batches")
        return data

    def walk(
        self, offset: int, epochs: EpochHistory
    ) -> Iterator[tuple[int, int, BatchSpan | None]]:
        """Check every batch from shortly before `offset` on, and yield (offset, position, batch).

        Ends with the first one that is damaged, or that the file has lost, which is None.
        """
        index, position, expected = self.index, 0, self.base_offset
        if index.positions:
            entry = max(0, index.entry_for_offset(offset))
            position, expected = index.positions[entry], index.offsets[entry]
        with self._files.using(self.file) as fd:
            while position < self.size:
                span = sound_batch(fd, position, self.size, expected, epochs)
                yield expected, position, span
                if span is None:
                    return
                position, expected = span.end, span.next_offset
        if expected < self.next_offset:
            yield expected, position, None

    def is_sound(self, position: int, offset: int, epochs: EpochHistory) -> bool:
        """Tell whether the batch at a position is sound, which should begin at `offset`."""
        with self._files.using(self.file) as fd:
            return sound_batch(fd, position, self.size, offset, epochs) is not None

    def fits(self, batch: BatchHeader, position: int) -> bool:
        """Tell whether a copy can be written at a position: it must not reach into another batch.

        A file that is too short has lost what follows. What is left of a batch that it lost a part
        of states the size, or is no whole header.
        """
        end = position + batch.size
        if batch.next_offset > self.next_offset:
            return False
        if end <= self.size:
            return end == self.size or batch.next_offset < self.next_offset
        left = self.size - position
        return left < HEADER_BYTES or self._stated_size(position) == batch.size

    def _stated_size(self, position: int) -> int:
        """Return the size that the header at a position states, whatever it is worth."""
        with self._files.using(self.file) as fd:
            return size_at(os.pread(fd, HEADER_BYTES, position), 0)

    def extend_to(self, size: int) -> None:
        """Count what was written behind the end of a file that was too short."""
        self.size = self.trusted_from = max(self.size, size)

    def _last_end_within(self, first: BatchSpan, limit: int) -> int:
        """Return the end of the last batch that ends by `limit`, at least the end of `first`."""
        entry = self.index.entry_for_position(limit)
        end = first.end
        end = max(end, self.index.positions[entry])
        for span in self.spans(entry):
            if span.end > limit:
                break
            end = max(end, span.end)
        return end

    def spans(self, entry: int = 0) -> Iterator[BatchSpan]:
        """Yield the batches from an index entry on, reading only headers.

        Raises:
            CorruptStoredBatch: a batch is damaged.

        """
        index = self.index
        if not index.positions:
            raise CorruptStoredBatch(f"{self.file.path.name} does not begin with a batch")
        position = index.positions[entry]
        following = entry + 1
        gap_end = index.positions[following] if following < len(index.positions) else self.size
        ahead = max(HEADER_BYTES, min(gap_end - position, self._interval + HEADER_BYTES))
        with self._files.using(self.file) as fd:
            yield from spans(fd, position, self.size, index.offsets[entry], read_ahead=ahead)
