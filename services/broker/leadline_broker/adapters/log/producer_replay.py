"""Deriving the idempotent producers of a log from its latest snapshot and the batches after it.

Damaged batches do not tell who wrote them. They are noted as unread, also in snapshots, and are
read again once they are repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from leadline_broker.adapters.log.checked_files import fsync_path
from leadline_broker.adapters.log.errors import LOST, NO_SPACE, CorruptStoredBatch
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.adapters.log.scan import defect_of, whole_batches
from leadline_broker.adapters.log.segment import Segment
from leadline_broker.adapters.log.snapshots import latest_snapshot, write_snapshot
from leadline_broker.domain.producers import ProducerStates
from leadline_client.batch_header import BatchHeader
from leadline_client.errors import CorruptBatch

OnSegment: TypeAlias = Callable[[], None]
"""Called before a segment is read while its log is opened; what it raises ends that."""

_AT_ONCE: Final = 1 << 20
"""How many bytes are read again in one turn of the event loop."""


def nothing() -> None:
    """Do nothing before a segment is read."""


def replay_producers(
    directory: Path,
    segments: Sequence[Segment],
    files: FileCache,
    on_segment: OnSegment = nothing,
) -> ProducerStates:
    """Rebuild the producers at the log end from the latest snapshot and the batches after it.

    Raises:
        OSError: the files cannot be read for another reason than that a sector is damaged.

    """
    start, end = segments[0].base_offset, segments[-1].next_offset
    offset, producers = latest_snapshot(directory, end, default=start)
    producers.keep_unread(start, offset)
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        on_segment()
        next_offset = max(offset, segment.base_offset)
        if segment is segments[-1] and next_offset > offset and producers.knows_any:
            _restore_snapshot(directory, next_offset, producers)
        try:
            for header in _headers(segment, files, next_offset, segment.next_offset):
                producers.apply(header)
                next_offset = header.next_offset
        except CorruptStoredBatch:
            producers.unread.append((next_offset, segment.next_offset))
    return producers


def _restore_snapshot(directory: Path, offset: int, producers: ProducerStates) -> None:
    """Write the snapshot at the active segment, which is lost: retention relies on it.

    On a full disk there is none until the next segment begins.
    """
    try:
        write_snapshot(directory, offset, producers, sync=True)
        fsync_path(directory)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise


def read_again(producers: ProducerStates, segments: Sequence[Segment], files: FileCache) -> None:
    """Read some of the first unread batches, which may be sound by now.

    Raises:
        CorruptStoredBatch: the batch at its offset is still damaged.
        OSError: the file cannot be read.

    """
    offset, end = producers.unread[0]
    segment = next(one for one in segments if one.base_offset <= offset < one.next_offset)
    found, size = ProducerStates(as_of=offset), 0
    try:
        for header in _headers(segment, files, offset, end):
            found.apply(header)
            offset, size = header.next_offset, size + header.size
            if size >= _AT_ONCE:
                break
    except CorruptStoredBatch as damage:
        raise CorruptStoredBatch(damage.message, offset=offset) from damage
    finally:
        producers.insert(found)
        producers.read_again(0, offset)


def _headers(segment: Segment, files: FileCache, offset: int, end: int) -> Iterator[BatchHeader]:
    """Yield the headers of the batches from one offset to another in a segment.

    Raises:
        CorruptStoredBatch: the next one is damaged, or is not there.

    """
    try:
        position = segment.find(offset).position
        with files.using(segment.file) as fd:
            for _, header, buffer in whole_batches(fd, position, segment.size):
                defect = defect_of(buffer, header, offset) if offset < end else None
                if offset >= end or defect is not None:
                    break
                yield header
                offset = header.next_offset
    except CorruptBatch as error:
        raise CorruptStoredBatch(error.message) from error
    except OSError as error:
        if error.errno not in LOST:  # A sector that cannot be read is damaged, too.
            raise
        raise CorruptStoredBatch(f"a batch cannot be read: {error.strerror}") from error
    if offset < end:
        raise CorruptStoredBatch(f"the batch at offset {offset} is damaged")
