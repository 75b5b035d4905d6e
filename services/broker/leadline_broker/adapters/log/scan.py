"""Reading a segment file batch by batch.

`spans` reads only headers, to find positions; `whole_batches` reads everything, to check and
replay the content.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from leadline_broker.adapters.log.errors import READ_ERRORS, CorruptStoredBatch, NotContiguous
from leadline_broker.domain.epochs import NO_EPOCH, EpochHistory
from leadline_client.batch_header import (
    HEADER_BYTES,
    MAGIC,
    SIZE_PREFIX,
    BatchHeader,
    Buffer,
    header_at,
    parse_headers,
)
from leadline_client.batches import crc_matches
from leadline_client.errors import CorruptBatch

# Base offset, length, leader epoch, magic; last offset delta; latest timestamp.
_SPAN = struct.Struct(">qiib6xi8xq")
_CHUNK = 1 << 20


class BatchSpan(NamedTuple):
    """The byte range of a stored batch in its file, and the offsets that it holds."""

    position: int
    size: int
    base_offset: int
    next_offset: int
    leader_epoch: int
    max_timestamp: int

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.size


def spans(
    fd: int, position: int, end: int, expected_offset: int, *, read_ahead: int = HEADER_BYTES
) -> Iterator[BatchSpan]:
    """Yield the batches between two file positions without reading their records.

    Each system call reads `read_ahead` bytes, enough for a run of small batches.

    Raises:
        CorruptStoredBatch: a header is invalid or does not begin at the offset where the
            previous batch ended (for the first batch: at `expected_offset`).

    """
    chunk, chunk_position = b"", position
    while position < end:
        at = position - chunk_position
        if at + HEADER_BYTES > len(chunk):
            chunk = os.pread(fd, max(HEADER_BYTES, min(read_ahead, end - position)), position)
            chunk_position, at = position, 0
        if len(chunk) < HEADER_BYTES:
            raise CorruptStoredBatch(f"no batch header at byte {position}")
        base, length, epoch, magic, delta, timestamp = _SPAN.unpack_from(chunk, at)
        size = length + SIZE_PREFIX
        valid = magic == MAGIC and HEADER_BYTES <= size <= end - position and delta >= 0
        if not valid or base != expected_offset:
            raise CorruptStoredBatch(
                f"the batch at byte {position} does not begin at offset {expected_offset}"
            )
        expected_offset = base + delta + 1
        yield BatchSpan(position, size, base, expected_offset, epoch, timestamp)
        position += size


def whole_batches(fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Yield (file position, header, buffer that the header refers to) of each batch.

    Only the framing is checked.

    Raises:
        CorruptBatch: a batch is incomplete.

    """
    chunk, at = b"", 0
    while position < end:
        if at + size_at(chunk, at) > len(chunk):
            chunk, at = _read_batch(fd, position, end), 0
        header = header_at(chunk, at)
        yield position, header, chunk
        at += header.size
        position += header.size


def size_at(chunk: bytes, at: int) -> int:
    """Return the size stated by the batch at `at`, or a header's size if it is out of the chunk."""
    if at + SIZE_PREFIX > len(chunk):
        return HEADER_BYTES
    return int.from_bytes(chunk[at + 8 : at + SIZE_PREFIX], "big", signed=True) + SIZE_PREFIX


def _read_batch(fd: int, position: int, end: int) -> bytes:
    """Read a chunk that contains the whole batch at `position`, if the file does."""
    chunk = os.pread(fd, min(_CHUNK, end - position), position)
    size = size_at(chunk, 0)
    return os.pread(fd, size, position) if len(chunk) < size <= end - position else chunk


def defect_of(buffer: bytes, header: BatchHeader, expected_offset: int) -> str | None:
    """Return what is wrong with a stored batch that should begin at `expected_offset`, or None."""
    if header.base_offset != expected_offset:
        return f"offset {header.base_offset} instead of {expected_offset}"
    if header.last_offset_delta < 0 or not crc_matches(buffer, header):
        return f"CRC mismatch at offset {expected_offset}"
    return None


def admit(data: Buffer, end_offset: int, epoch: int, *, crc_checked: bool) -> list[BatchHeader]:
    """Return the headers of batches that continue a log with this end offset and last epoch.

    Raises:
        CorruptBatch: a header or, unless `crc_checked`, a CRC is invalid.
        NotContiguous: the batches leave a gap or have decreasing epochs.

    """
    headers = list(parse_headers(data))
    for header in headers:
        if header.base_offset != end_offset or header.last_offset_delta < 0:
            raise NotContiguous(f"batch at {header.base_offset}, the log ends at {end_offset}")
        if header.leader_epoch < epoch:
            raise NotContiguous(f"epoch {header.leader_epoch} after epoch {epoch}")
        if not crc_checked and not crc_matches(data, header):
            raise CorruptBatch(f"CRC mismatch in the batch at offset {end_offset}")
        end_offset, epoch = header.next_offset, header.leader_epoch
    if not headers:
        raise CorruptBatch("no batch to append")
    return headers


def sound_batch(
    fd: int, position: int, end: int, expected_offset: int, epochs: EpochHistory
) -> BatchSpan | None:
    """Return the batch at a file position, None if it is damaged or does not fit before `end`."""
    try:
        with READ_ERRORS:
            span = next(spans(fd, position, end, expected_offset), None)
            if span is None:
                return None
            data = os.pread(fd, span.size, position)
        check_stored(data, expected_offset, epochs)
    except CorruptStoredBatch:
        return None
    return span


def check_stored(data: bytes, expected_offset: int, epochs: EpochHistory) -> int:
    """Check batches that were read from a file; return the offset after the last one.

    The CRC covers neither base offset nor leader epoch, so both are compared with the log's
    own records.

    Raises:
        CorruptStoredBatch: they differ from what was appended and must not be served.

    """
    try:
        for header in parse_headers(data):
            defect = defect_of(data, header, expected_offset)
            known_epoch = epochs.epoch_at(expected_offset)
            if defect is None and known_epoch not in {header.leader_epoch, NO_EPOCH}:
                defect = f"epoch {header.leader_epoch} at offset {expected_offset}"
            if defect is not None:
                raise CorruptStoredBatch(defect)
            expected_offset = header.next_offset
    except CorruptBatch as error:
        raise CorruptStoredBatch(f"after offset {expected_offset}: {error.message}") from error
    return expected_offset
