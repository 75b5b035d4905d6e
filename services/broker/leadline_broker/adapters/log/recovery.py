"""Opening a partition's directory and recovering the end of its log.

After a clean stop, the index and snapshot files describe the log completely. After any other
stop, the last segment is read and checked batch by batch; an invalid tail was never
acknowledged and is truncated. Other segments were durable before the one after them got its name,
so damage in them is not truncated; reading it fails. A segment that still has its provisional name
holds nothing durable: if it continues the recovered last segment, it is checked and kept, too.

A batch's CRC does not cover its leader epoch. But the epochs of batches are recorded before the
batches are durable (`epoch_file.py`). So a batch with an epoch that is not recorded for its offset
is damaged or was never durable: the invalid tail begins there (rule R18).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final

from leadline_broker.adapters.log.checked_files import TEMPORARY_SUFFIX, fsync_path
from leadline_broker.adapters.log.epoch_file import (
    read_epochs,
    recorded_histories,
    write_epochs,
)
from leadline_broker.adapters.log.errors import CorruptFile, CorruptStoredBatch
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.layout import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    METADATA_FILE,
    PROVISIONAL_SUFFIX,
    LogConfig,
    offset_name,
    offsets_named,
)
from leadline_broker.adapters.log.log_start import create_placeholder, lost_start
from leadline_broker.adapters.log.producer_replay import OnSegment, nothing, replay_producers
from leadline_broker.adapters.log.scan import check_stored, defect_of, whole_batches
from leadline_broker.adapters.log.segment import Segment
from leadline_broker.adapters.log.snapshots import remove_snapshots, sync_snapshot
from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.producers import ProducerStates
from leadline_client.batch_header import BatchHeader
from leadline_client.errors import CorruptBatch
from leadline_common.settings.fields import INT64_MAX

_LEARNED_AT_ONCE: Final = 16
"""Of how many segments the index is read in a step, 0.3 ms each."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of opening a log.

    Attributes:
        scanned_bytes: bytes whose CRC was checked; 0 after a clean stop.
        cut_bytes: bytes truncated from the end; 0 if all were valid.
        cut_offset: the log end after the truncation.
        has_segments: whether there was any segment, which may have been empty.
        reason: why the first truncated batch was invalid; empty if none was truncated.

    """

    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_offset: int = 0
    reason: str = ""
    has_segments: bool = True

    def followed_by(self, last: RecoveryReport) -> RecoveryReport:
        """Return the report of this segment and the one after it."""
        return replace(
            last,
            scanned_bytes=self.scanned_bytes + last.scanned_bytes,
            cut_bytes=self.cut_bytes + last.cut_bytes,
            reason=last.reason or self.reason,
        )


@dataclass(slots=True)
class LogState:
    """The content of an opened log; the last segment is the active one."""

    segments: list[Segment]
    epochs: EpochHistory
    producers: ProducerStates

    @property
    def start_offset(self) -> int:
        """The first offset of the first segment, 0 if nothing was ever written."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        """The offset after the last batch."""
        return self.segments[-1].next_offset if self.segments else 0

    @property
    def deletable_end_offset(self) -> int:
        """The offset before which segments may be deleted.

        A provisional segment counts as nothing when the log is opened again without the one before.
        """
        if len(self.segments) > 1 and self.segments[-1].file.provisional is not None:
            return self.segments[-2].base_offset
        return self.end_offset

    def segment_number(self, offset: int) -> int:
        """Return the number of the segment whose offset range contains `offset`."""
        return bisect_right(self.segments, offset, key=attrgetter("base_offset")) - 1

    def size_from(self, offset: int) -> int:
        """Return the bytes from `offset` to the end, rounded to index entries."""
        first = max(0, self.segment_number(offset))
        size = sum(segment.size for segment in self.segments[first:])
        return size - self.segments[first].position_of(offset) if size else 0

    def learn_timestamps(self) -> bool:
        """See `PartitionLog.learn_timestamps`."""
        unknown = [one for one in self.segments[:-1] if not one.knows_max_timestamp]
        for segment in unknown[:_LEARNED_AT_ONCE]:
            segment.learn_max_timestamp()
        return len(unknown) > _LEARNED_AT_ONCE

    def batch_for_timestamp(self, timestamp: int, from_offset: int) -> bytes:
        """Return the first batch from `from_offset` on whose latest timestamp is at or after."""
        for segment in self.segments:
            if segment.next_offset <= from_offset:
                continue
            try:
                data = self._batch_for_timestamp(segment, timestamp, from_offset)
            except CorruptStoredBatch as error:
                near = max(segment.base_offset, from_offset)
                raise CorruptStoredBatch(error.message, offset=near) from error
            if data:
                return data
        return b""

    def _batch_for_timestamp(self, segment: Segment, timestamp: int, from_offset: int) -> bytes:
        for span in segment.find_timestamp(timestamp):
            if span.base_offset >= from_offset:
                data = segment.read_bytes(span.position, span.end)
                check_stored(data, span.base_offset, self.epochs)
                return data
        return b""


def load(
    directory: Path,
    config: LogConfig,
    files: FileCache,
    *,
    clean: bool,
    on_segment: OnSegment = nothing,
) -> tuple[LogState, RecoveryReport]:
    """Open the log in `directory`; its content is durable afterwards.

    `clean` says that the previous process shut down cleanly.

    Raises:
        CorruptFile: a segment's name is no offset; nothing was changed in it.
        OSError: the files cannot be read or written.

    """
    if not directory.exists():
        return LogState([], EpochHistory(), ProducerStates()), RecoveryReport(has_segments=False)
    for suffix in (TEMPORARY_SUFFIX, DELETED_SUFFIX):
        for leftover in directory.glob(f"*{suffix}"):
            leftover.unlink(missing_ok=True)  # A thread may be removing it.
    segments = _segments(directory, config, files)
    if not segments:
        _remove_provisional(directory)
        return LogState([], EpochHistory(), ProducerStates()), RecoveryReport(has_segments=False)
    report = RecoveryReport()
    recorded = recorded_histories(directory)
    start = lost_start(directory, segments[0].base_offset, recorded)
    if start is not None:
        create_placeholder(directory, start, segments[0].base_offset)
        segments = _segments(directory, config, files)
    if clean and _opens_without_scan(segments[-1]):
        epochs = recorded[0] if recorded else _epochs_of_batches(segments, on_segment)
        _remove_provisional(directory)
    else:
        closed = recorded[0] if recorded else _epochs_of_batches(segments[:-1], on_segment)
        epochs = EpochHistory(closed.entries())
        epochs.truncate_to(segments[-1].base_offset)
        on_segment()
        report = _recover_tail(segments[-1], epochs, recorded, files)
        if following := _settle_next(directory, segments, config, files):
            report = report.followed_by(_recover_tail(following, epochs, recorded, files))
        report = replace(report, cut_bytes=report.cut_bytes + _remove_provisional(directory))
        segments[-1].remove_index_files()
        first, end = segments[0].base_offset, segments[-1].next_offset
        remove_snapshots(directory, lambda offset: first <= offset <= end)
        _make_durable(directory, epochs)
    epochs.advance_start(segments[0].base_offset)
    epochs.truncate_to(segments[-1].next_offset)
    producers = replay_producers(directory, segments, files, on_segment)
    return LogState(segments, epochs, producers), report


def _segments(directory: Path, config: LogConfig, files: FileCache) -> list[Segment]:
    bases = offsets_named(directory, LOG_SUFFIX)
    if bases and bases[-1] > INT64_MAX:
        name = offset_name(bases[-1], LOG_SUFFIX)
        raise CorruptFile(f"{directory.name}/{name} is no segment: no offset is so large")
    interval = config.index_interval_bytes
    return [
        Segment.existing(directory, base, following, files, interval)
        for base, following in pairwise([*bases, *bases[-1:]])
    ]


def _settle_next(
    directory: Path, segments: list[Segment], config: LogConfig, files: FileCache
) -> Segment | None:
    """Add the provisional segment that continues the last one, which is durable now, if any."""
    last = segments[-1]
    path = directory / offset_name(last.next_offset, PROVISIONAL_SUFFIX)
    if not path.exists():
        return None
    last.seal()
    sync_snapshot(path)
    path.rename(path.with_suffix(LOG_SUFFIX))
    base, interval = last.next_offset, config.index_interval_bytes
    segments.append(Segment.existing(directory, base, base, files, interval))
    return segments[-1]


def _remove_provisional(directory: Path) -> int:
    """Remove provisional segments, which hold nothing durable; return their bytes."""
    size = 0
    for path in directory.glob(f"*{PROVISIONAL_SUFFIX}"):
        size += path.stat().st_size
        path.unlink()
    return size


def _opens_without_scan(active: Segment) -> bool:
    try:
        active.load_index()
    except CorruptFile:
        return False
    return True


def _recover_tail(
    active: Segment, epochs: EpochHistory, recorded: list[EpochHistory], files: FileCache
) -> RecoveryReport:
    """Check the active segment from its start, truncate an invalid tail, and sync it.

    `epochs`, the history before the segment, gets the epochs in it.
    """
    size, active.size, active.trusted_from = active.size, 0, 0
    active.clear()
    reason = ""
    with files.using(active.file) as fd:
        # After a failed fsync the page cache may differ from the disk: read from the disk.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            for position, header, buffer in whole_batches(fd, 0, size):
                reason = _tail_defect(buffer, header, active.next_offset, epochs, recorded)
                if reason:
                    break
                active.note(header, position)
                epochs.assign(header.leader_epoch, header.base_offset)
        except CorruptBatch as error:
            reason = error.message
        if active.size < size:
            os.ftruncate(fd, active.size)
        os.fsync(fd)
    return RecoveryReport(size, size - active.size, active.next_offset, reason)


def _tail_defect(
    buffer: bytes,
    header: BatchHeader,
    expected_offset: int,
    epochs: EpochHistory,
    recorded: list[EpochHistory],
) -> str:
    """Return why a batch is not valid, or "".

    If nothing is `recorded`, only an epoch below that of the batch before it is invalid.
    """
    defect = defect_of(buffer, header, expected_offset)
    if defect is not None:
        return defect
    if header.leader_epoch < epochs.latest:
        return f"epoch {header.leader_epoch} after epoch {epochs.latest}"
    known = {history.epoch_at(expected_offset) for history in recorded}
    if known and header.leader_epoch not in known:
        return f"epoch {header.leader_epoch}, which is not recorded for offset {expected_offset}"
    return ""


def _epochs_of_batches(segments: list[Segment], on_segment: OnSegment) -> EpochHistory:
    epochs = EpochHistory()
    for segment in segments:
        on_segment()
        try:
            for span in segment.spans():
                if span.leader_epoch > epochs.latest:
                    epochs.assign(span.leader_epoch, span.base_offset)
        except CorruptStoredBatch:
            continue  # Reading the damaged part fails anyway; later segments still count.
    return epochs


def _make_durable(directory: Path, epochs: EpochHistory) -> None:
    """Sync what the last process may have created and not synced, and a stale epoch file."""
    try:
        stale = read_epochs(directory) != epochs.entries()
    except CorruptFile:
        stale = True
    if stale:
        write_epochs(directory, epochs.entries())
    fsync_path(directory / METADATA_FILE)
    fsync_path(directory)
    fsync_path(directory.parent)
