"""The log of one partition: append, flush, read, truncate, apply retention."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from leadline_broker.adapters.log import recovery
from leadline_broker.adapters.log.checked_files import fsync_path
from leadline_broker.adapters.log.creation import beginning
from leadline_broker.adapters.log.durability import Durability, OnFlushed
from leadline_broker.adapters.log.epoch_file import write_unsynced_epochs
from leadline_broker.adapters.log.errors import READ_ERRORS, STORAGE_ERRORS
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.layout import LogConfig, PartitionIdentity
from leadline_broker.adapters.log.producer_replay import OnSegment, nothing, replay_producers
from leadline_broker.adapters.log.retention import RenamedFiles, Retention
from leadline_broker.adapters.log.scan import admit
from leadline_broker.adapters.log.segment import Segment
from leadline_broker.adapters.log.snapshots import remove_snapshots, write_snapshot
from leadline_broker.adapters.log.stored_batches import StoredBatches
from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.producers import ProducerStates
from leadline_client.batch_header import Buffer
from leadline_client.errors import OffsetOutOfRange, StorageFailed


class PartitionLog:
    """The records of one replica, and the offset up to which they are durable.

    One thread owns the log. Only `flush` may be called from another thread; methods that
    remove or replace files wait for flushes. Nothing exists on disk before the first append.

    Invariant: log_start_offset <= durable_end_offset <= log_end_offset, and the
    batches between start and end are contiguous with epochs that never decrease.

    Attributes:
        identity: topic, topic id and partition.
        directory: the directory of its files, which may not exist yet.
        recovery: what opening the log found.

    """

    __slots__ = (
        "_config",
        "_durability",
        "_files",
        "_lost_before",
        "_renamed",
        "_state",
        "directory",
        "identity",
        "recovery",
    )

    def __init__(
        self,
        root: Path,
        identity: PartitionIdentity,
        config: LogConfig,
        files: FileCache,
        *,
        clean: bool = False,
        on_created: Callable[[], None] = lambda: None,
        on_segment: OnSegment = nothing,
    ) -> None:
        """Open the log under `root`, with recovery unless `clean`; see `Durability.on_created`.

        Raises:
            StorageFailed: the files cannot be read or written.

        """
        self.identity = identity
        self.directory = root / identity.directory_name
        self._config = config
        self._files = files
        self._lost_before = 0
        self._renamed = RenamedFiles(self.directory)
        with STORAGE_ERRORS:
            self._state, self.recovery = recovery.load(
                self.directory, config, files, clean=clean, on_segment=on_segment
            )
        self._durability = Durability(
            self.directory, files, self._state.epochs, self._state.end_offset, on_created
        )

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._state.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record (LEO)."""
        return self._durability.end_offset

    @property
    def durable_end_offset(self) -> int:
        """The offset before which everything is fsynced (rule R4)."""
        return self._durability.durable_end_offset

    @property
    def epochs(self) -> EpochHistory:
        """Which leader epoch wrote which offsets."""
        return self._state.epochs

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers as of the log end."""
        return self._state.producers

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._state.segments)

    @property
    def failed(self) -> bool:
        """Whether a write or an fsync failed; such a log only raises `LogFailed`."""
        return self._durability.failure is not None

    @property
    def lacks_records(self) -> bool:
        """Whether it lacks what it has removed to restart, for it could not restart (rule R17)."""
        return self.log_end_offset < self._lost_before

    @property
    def has_unsynced(self) -> bool:
        """Whether anything was written that is not fsynced yet, a repair among it."""
        return self._durability.has_unsynced

    def roll_at(self, segment_bytes: int) -> None:
        """From now on, close a segment before it grows beyond `segment_bytes`."""
        self._config = replace(self._config, segment_bytes=segment_bytes)

    def append(self, data: Buffer, *, crc_checked: bool = False) -> int:
        """Append whole batches, stamped and contiguous with the log end; return the new end.

        They can be read at once and are durable after the next `flush`. With `crc_checked`
        the caller has verified them already.

        Raises:
            CorruptBatch: a header or a CRC is invalid.
            NotContiguous: they do not continue the log.
            DiskFull: there is no space; the log is unchanged.
            LogFailed: the write failed for another reason; see `failed`.

        """
        self._durability.require_usable()
        headers = admit(data, self.log_end_offset, self.epochs.latest, crc_checked=crc_checked)
        with self._durability.placing():
            segment = self._segment_for(len(data))
            if headers[-1].leader_epoch != self.epochs.latest:
                write_unsynced_epochs(self.directory, self.epochs, headers)
        self._durability.append(segment.file, data, segment.size)
        position = segment.size
        with self._durability.noting():
            for header in headers:
                segment.note(header, position + header.position)
                if header.leader_epoch != self.epochs.latest:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                    self._durability.epochs_changed()
                self._state.producers.apply(header)
            self._durability.end_offset = segment.next_offset
        return segment.next_offset

    def flush(self) -> int:
        """Fsync all that is appended so far; return the durable end offset.

        Thread-safe. Appends may continue meanwhile; they are durable after the next flush.

        Raises:
            LogFailed: an fsync failed, now or before; it is never retried.
            StorageFailed: no space for the epoch file, or no descriptor; it may be retried.

        """
        return self._durability.flush()

    def begin_flush(self, on_flushed: OnFlushed) -> bool:
        """Start a flush of records alone that needs no thread; return whether that is possible."""
        return self._durability.begin_flush(on_flushed)

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches from the one that holds `offset`, none past `end_offset`.

        Returns at least one batch, even if it is larger than `max_bytes`, and batches of one
        segment only. The result is empty at or beyond `end_offset`, which is exclusive.

        Raises:
            OffsetOutOfRange: before the log start or beyond the log end.
            CorruptStoredBatch: the bytes on disk differ from what was appended.

        """
        self._durability.require_usable()
        start, end = self.log_start_offset, self.log_end_offset
        if not start <= offset <= end:
            reason = f"offset {offset} is outside {start} to {end}"
            raise OffsetOutOfRange(reason, log_start_offset=start, log_end_offset=end)
        end_offset = min(end_offset, end)
        if offset >= end_offset:
            return b""
        segment = self._state.segments[self._state.segment_number(offset)]
        with READ_ERRORS:
            return segment.read(offset, max_bytes, end_offset, self.epochs)

    @property
    def batches(self) -> StoredBatches:
        """What checks and repairs the stored batches."""
        return StoredBatches(self._state, self._durability, self._files)

    def size_from(self, offset: int) -> int:
        """Return the bytes from `offset` to the end, rounded to index entries."""
        with STORAGE_ERRORS:
            return self._state.size_from(offset)

    def learn_timestamps(self) -> bool:
        """Read what lookups by time need of some closed segments; return whether any is left."""
        self._durability.require_usable()
        with STORAGE_ERRORS:
            return self._state.learn_timestamps()

    def batch_for_timestamp(self, timestamp: int, from_offset: int) -> bytes:
        """Return the first batch whose latest timestamp (ms) is at or after `timestamp`.

        Batches before `from_offset` are passed over; the result is empty if there is none.

        Raises:
            CorruptStoredBatch: the batch is damaged.

        """
        self._durability.require_usable()
        with READ_ERRORS:
            return self._state.batch_for_timestamp(timestamp, from_offset)

    def truncate_to(self, offset: int) -> int:
        """Truncate the log at the last batch boundary at or before `offset`; return the new end.

        The result is durable when this returns. At or beyond the log end nothing happens;
        before the log start the log becomes empty and restarts at `offset`.

        Raises:
            LogFailed, StorageFailed: see `reset_to`.

        """
        with self._durability.replacing():
            if offset >= self.log_end_offset:
                return self.log_end_offset
            if offset < self.log_start_offset:
                known = self.producers.before(offset)
                self._restart_at(offset, ProducerStates.after(known, offset))
            else:
                self._truncate(offset)
            return self.flush()

    def reset_to(self, offset: int, producers: ProducerStates) -> None:
        """Delete all records and restart at `offset`, with the producers before it; durably.

        Raises:
            LogFailed: the disk operation failed.
            StorageFailed: no space, or no descriptor; perhaps it `lacks_records` then.

        """
        with self._durability.replacing():
            self._restart_at(offset, producers)
            self.flush()

    def apply_retention(
        self, now_ms: int, retention_ms: int, retention_bytes: int, limit_offset: int
    ) -> int:
        """Delete some old closed segments that end at or before `limit_offset`; return the bytes.

        A segment is deleted if its latest record is older than `retention_ms`, or if the log
        still holds `retention_bytes` without it; a negative limit disables the rule.
        `limit_offset` is the high watermark. Call it again until nothing was deleted.

        Raises:
            StorageFailed: a file cannot be read or renamed; nothing was deleted.

        """
        self._durability.require_usable()
        limit_offset = min(limit_offset, self._state.deletable_end_offset)
        retention = Retention(now_ms, retention_ms, retention_bytes, limit_offset)
        size = retention.set_aside(self._state.segments, self._renamed.paths)
        if size:
            self._durability.entries_changed()
            self.producers.keep_unread(self.log_start_offset, self.log_end_offset)
            with self._durability.marking:
                self.epochs.advance_start(self.log_start_offset)
                self.epochs.truncate_to(self.log_end_offset)  # Without batches it has no epoch.
                self._durability.epochs_changed()
        return size

    def removal(self) -> Callable[[], None] | None:
        """Return the removal of the files that have left the log, for any thread; None if none has.

        Whoever deletes or truncates has it run: nobody else does before the log is opened again.
        """
        return self._renamed.removal()

    def close(self) -> None:
        """Flush, write index and snapshot, and close the files; the next open may be `clean`.

        Raises:
            StorageFailed: the flush failed; the next open must recover the log.

        """
        with STORAGE_ERRORS, self._durability.exclusive():
            if self._durability.closed:
                return
            try:
                self.flush()
                if self._state.segments:
                    self._seal_active()
                    kept = {segment.base_offset for segment in self._state.segments}
                    remove_snapshots(self.directory, (kept | {self.log_end_offset}).__contains__)
            finally:
                self._release()

    def discard(self) -> None:
        """Close without flushing; records that are not durable may be lost."""
        with self._durability.exclusive():
            self._release()

    def _segment_for(self, size: int) -> Segment:
        """Return the segment to append `size` bytes to; create or roll it if necessary."""
        segments = self._state.segments
        if not segments:
            return self._add_segment(0, None, provisional=False)
        active = segments[-1]
        if not active.size or active.size + size <= self._config.segment_bytes:
            return active
        if active.file.provisional is not None:
            self.flush()  # Only one segment at a time follows another that may not be durable.
        self._seal_active()
        return self._add_segment(self.log_end_offset, None, provisional=True)

    def _add_segment(self, base: int, told: ProducerStates | None, *, provisional: bool) -> Segment:
        is_first = not self._state.segments
        files, interval = self._files, self._config.index_interval_bytes
        segment = Segment(self.directory, base, files, interval, provisional=provisional)
        log = self.directory, self.identity, base, told
        with beginning(*log) if is_first else nullcontext():
            files.create(segment.file)
        self._state.segments.append(segment)
        self._durability.entries_changed(new_directory=is_first)
        return segment

    def _seal_active(self) -> None:
        self._state.segments[-1].seal()
        write_snapshot(self.directory, self.log_end_offset, self.producers)

    def _truncate(self, offset: int) -> None:
        number = self._state.segment_number(offset)
        segment = self._state.segments[number]
        position, end = segment.boundary(offset)
        if number + 1 < len(self._state.segments):
            self._remove_from(number + 1)
            fsync_path(self.directory)  # No later segment may survive the truncation.
        segment.remove_index_files()
        remove_snapshots(self.directory, end.__ge__)
        fd = self._files.pin(segment.file)
        self._durability.wrote(segment.file)
        os.ftruncate(fd, position)
        segment.truncate_at(position, end)
        self.epochs.truncate_to(end)
        if not self.producers.truncate_to(end):
            log = self.directory, self._state.segments, self._files
            self._state.producers = replay_producers(*log)
        self._durability.truncated(end)

    def _restart_at(self, offset: int, producers: ProducerStates) -> None:
        had_files = bool(self._state.segments)
        self._remove_from(0)
        self.epochs.truncate_to(0)
        begin = partial(self._add_segment, offset, producers, provisional=False)
        try:
            self._renamed.make_room_for(begin)
        except StorageFailed:
            if had_files:
                self._lost_before, self._state.producers = offset, ProducerStates()
                self._durability.truncated(0)
            raise
        self._lost_before, self._state.producers = 0, producers
        self._durability.truncated(offset)

    def _remove_from(self, number: int) -> None:
        """Remove segments, the last one first, so that a crash leaves a prefix of the log."""
        self._durability.forget_files()
        while len(self._state.segments) > number:
            self._renamed.paths.append(self._state.segments[-1].set_aside())
            self._state.segments.pop()

    def _release(self) -> None:
        self._durability.close()
        for segment in self._state.segments:
            self._files.close(segment.file)
