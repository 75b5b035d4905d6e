"""Decode stored record batches to Arrow, with pyarrow and the standard library alone.

A loop finds where each record begins (`record_starts`). Arrow's kernels do everything else for
thousands of records at once (`record_fields`), and copy keys and values once, from the fetched
bytes to their column. The hundred calls of kernels take as long for ten records as for a thousand,
so groups of stored batches are decoded together, and then cut into Arrow batches without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from leadline_client.batch_header import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    stored_headers,
)
from leadline_client.columnar.checksum import Checksum
from leadline_client.columnar.columns import record_batch
from leadline_client.columnar.compression import decompress
from leadline_client.columnar.layout import Layout
from leadline_client.columnar.sections import Section, joined
from leadline_client.errors import CorruptBatch, UnreadableBatch
from leadline_client.unreadable import UnreadableRecords

_GROUP_ROWS: Final = 1 << 16
_GROUP_BYTES: Final = 8 << 20
"""How much is decoded together. More would not be faster, but no longer fit into caches."""


def decode(data: Buffer, start: int, end: int, layout: Layout) -> Iterator[pa.RecordBatch]:
    """Yield the records with `start <= offset < end` of whole batches, and verify checksums.

    Control batches yield no records; `stored_headers` returns which offsets the batches cover.

    Raises:
        CorruptBatch: a header or a checksum is invalid.
        UnreadableBatch: the records of a batch are malformed, or decompress to too many bytes, or
            do not have its offsets one by one. The records before it have been yielded.

    """
    view = memoryview(data).cast("B")
    group = _Group(view, start, end, layout)
    for header in stored_headers(view):
        if header.last_offset < start or header.base_offset >= end:
            continue
        _verify(view, header, layout.crc)
        if header.is_control:
            continue
        try:
            section = _section(view, header)
        except UnreadableRecords as error:
            yield from group.flush()
            raise _unreadable(header, error) from error
        if group.would_overflow(section):
            yield from group.flush()
        group.add(section)
    yield from group.flush()


def _verify(view: memoryview, header: BatchHeader, crc: Checksum) -> None:
    """Raise CorruptBatch unless the checksum of the batch is correct."""
    found = crc(view[header.crc_range])
    if found != header.crc:
        raise CorruptBatch(
            f"the batch at offset {header.base_offset} has the checksum {found:#010x}, its header "
            f"says {header.crc:#010x}"
        )


def _section(view: memoryview, header: BatchHeader) -> Section:
    if header.record_count != header.last_offset_delta + 1:
        raise UnreadableRecords("it does not have as many records as offsets")
    begin = header.position + HEADER_BYTES
    packed = view[begin : header.position + header.size]
    if not header.compression:
        return Section(header, begin, len(packed), None)
    content = decompress(packed, header.compression)
    return Section(header, 0, content.size, content)


def _unreadable(header: BatchHeader, error: Exception) -> UnreadableBatch:
    return UnreadableBatch.at(header.base_offset, header.next_offset, str(error))


@dataclass(slots=True)
class _Group:
    """Stored batches that are decoded together, to as many Arrow batches as the layout wants."""

    view: memoryview
    start: int
    end: int
    layout: Layout
    _sections: list[Section] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0

    def would_overflow(self, section: Section) -> bool:
        """Return whether the group must be flushed before this batch is added."""
        rows, size = self._rows + section.header.record_count, self._bytes + section.size
        return self._rows > 0 and (rows > _GROUP_ROWS or size > _GROUP_BYTES)

    def add(self, section: Section) -> None:
        """Add a batch to the group."""
        self._sections.append(section)
        self._rows += section.header.record_count
        self._bytes += section.size

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the group, and clear it."""
        sections, rows, size = self._sections, self._rows, self._bytes
        self._sections, self._rows, self._bytes = [], 0, 0
        if not sections:
            return
        by_bytes = max(1, rows * self.layout.most_bytes // max(size, 1))
        most = min(self.layout.most_rows, by_bytes)
        for batch in self._decoded(sections):
            yield from _cut(batch, most)

    def _decoded(self, sections: list[Section]) -> Iterator[pa.RecordBatch]:
        try:
            yield self._batch(sections)
        except _MALFORMED as error:
            if len(sections) == 1:
                raise _unreadable(sections[0].header, error) from error
            # One of them is malformed: decode what comes before it, and then name it.
            for section in sections:
                yield from self._decoded([section])

    def _batch(self, sections: list[Section]) -> pa.RecordBatch:
        octets, placed = joined(self.view, sections)
        return record_batch(octets, placed, self.start, self.end, self.layout)


def _cut(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield parts of about the same size, of at most so many rows; nothing if there are none."""
    rows = batch.num_rows
    parts = -(-rows // most)
    for number in range(parts):
        start, end = rows * number // parts, rows * (number + 1) // parts
        yield batch.slice(start, end - start)


_MALFORMED = (UnreadableRecords, pa.ArrowException, IndexError, OverflowError)
