"""Decode stored record batches to Arrow, with pyarrow and the standard library alone.

A Python loop finds where each record begins, because that depends on the record before. Arrow's
kernels do everything else for thousands of records at once (`varints`), and copy keys and values
once, from the fetched bytes to their column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from leadline_spark.codec.checksum import Buffer, Checksum, crc32c
from leadline_spark.codec.columns import NO_HEADERS, Columns, read_headers, schema
from leadline_spark.codec.compression import DecompressionFailed, decompress
from leadline_spark.codec.frames import (
    CODEC_BITS,
    HEADER_BYTES,
    Frame,
    corrupt,
    frames,
    verify,
)
from leadline_spark.codec.varints import Cursors, MalformedRecord, record_starts

MOST_ROWS = 10_000
MOST_BYTES = 3 << 20
"""The largest Arrow batch for Spark, in rows and bytes; a single record may be larger."""

_ATTRIBUTES = pa.scalar(1, pa.int64())
_ABSENT = pa.scalar(-1, pa.int64())
_NONE = pa.scalar(0, pa.int64())
_HALF_WORD = pa.scalar(32, pa.int64())
_MICROSECONDS = pa.scalar(1000, pa.int64())


def decode(
    data: Buffer,
    start: int,
    end: int,
    wanted: Columns,
    topic: str,
    partition: int,
    crc: Checksum = crc32c,
) -> Iterator[pa.RecordBatch]:
    """Yield the records with `start <= offset < end` of whole batches, and verify checksums.

    Control batches and offsets that compaction has removed yield no records; `frames` returns
    which offsets the batches cover.

    Raises LeadlineSparkError: LEADLINE_BATCH_CORRUPT for any malformed bytes.
    """
    view = memoryview(data).cast("B")
    group = _Group(start, end, wanted, topic, partition)
    for frame in frames(view):
        if frame.last_offset < start or frame.base_offset >= end:
            continue
        verify(view, frame, crc)
        if frame.is_control or frame.record_count == 0:
            continue
        section = _section(view, frame)
        if group.would_overflow(frame, section):
            yield from group.flush()
        group.add(frame, section)
    yield from group.flush()


def _section(view: memoryview, frame: Frame) -> pa.Buffer:
    packed = view[frame.position + HEADER_BYTES : frame.position + frame.size]
    try:
        return decompress(packed, frame.attributes & CODEC_BITS)
    except DecompressionFailed as failure:
        message = f"the records of the batch at offset {frame.base_offset} cannot be unpacked"
        advice = f"start from offset {frame.last_offset + 1} to skip it"
        raise corrupt(f"{message}: {failure}; {advice}") from failure


@dataclass(slots=True)
class _Rows:
    """The positions of the parts of records in their section, and their numbers."""

    timestamp_deltas: pa.Int64Array
    offset_deltas: pa.Int64Array
    key: tuple[pa.Int64Array, pa.Int64Array]
    value: tuple[pa.Int64Array, pa.Int64Array]
    header_counts: pa.Int64Array
    headers_at: pa.Int64Array


@dataclass(slots=True)
class _Group:
    """Stored batches that are decoded together, to one Arrow batch or, if large, to several."""

    start: int
    end: int
    wanted: Columns
    topic: str
    partition: int
    _frames: list[Frame] = field(default_factory=list)
    _sections: list[pa.Buffer] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0

    def would_overflow(self, frame: Frame, section: pa.Buffer) -> bool:
        """Return whether the group must be flushed before this batch is added."""
        rows, size = self._rows + frame.record_count, self._bytes + section.size
        return self._rows > 0 and (rows > MOST_ROWS or size > MOST_BYTES)

    def add(self, frame: Frame, section: pa.Buffer) -> None:
        """Add a batch to the group."""
        self._frames.append(frame)
        self._sections.append(section)
        self._rows += frame.record_count
        self._bytes += section.size

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the group, and clear it."""
        if not self._frames:
            return
        try:
            batch = self._decoded()
        except (MalformedRecord, pa.ArrowException, IndexError, OverflowError) as failure:
            first, last = self._frames[0].base_offset, self._frames[-1].last_offset
            raise corrupt(
                f"the batches at offsets {first} to {last} have the right checksums, but their "
                f"records cannot be read: {failure}; start from offset {last + 1} to skip them"
            ) from failure
        rows = min(MOST_ROWS, max(1, self._rows * MOST_BYTES // max(self._bytes, 1)))
        self._frames, self._sections, self._rows, self._bytes = [], [], 0, 0
        for position in range(0, batch.num_rows, rows):
            yield batch.slice(position, rows)

    def _decoded(self) -> pa.RecordBatch:
        octets = b"".join(self._sections)
        section = pa.py_buffer(octets)
        starts = self._starts(octets)
        rows = _parse(Cursors(section, pa.array(starts, pa.int64())), len(octets))
        offsets = pc.add(self._each("base_offset"), rows.offset_deltas)
        columns = {
            "key": lambda: _gather(section, *rows.key),
            "value": lambda: _gather(section, *rows.value),
            "topic": lambda: pa.repeat(pa.scalar(self.topic, pa.string()), self._rows),
            "partition": lambda: pa.repeat(pa.scalar(self.partition, pa.int32()), self._rows),
            "offset": lambda: offsets,
            "timestamp": lambda: self._timestamps(rows.timestamp_deltas),
            "timestampType": lambda: self._timestamp_types().cast(pa.int32()),
            "headers": lambda: self._headers(rows, octets),
            "leaderEpoch": lambda: self._each("leader_epoch").cast(pa.int32()),
        }
        arrays = [columns[name]() for name in self.wanted]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema(self.wanted))
        if self._frames[0].base_offset < self.start or self._frames[-1].last_offset >= self.end:
            inside = pc.and_(pc.greater_equal(offsets, self.start), pc.less(offsets, self.end))
            return batch.filter(inside)
        return batch

    def _starts(self, octets: bytes) -> list[int]:
        """Return where every record begins. Each batch must end with its last record."""
        starts: list[int] = []
        position = 0
        for frame, section in zip(self._frames, self._sections, strict=True):
            finish = position + section.size
            position = record_starts(octets, position, frame.record_count, starts)
            if position != finish:
                raise MalformedRecord(
                    f"{frame.record_count} records do not fill {section.size} bytes"
                )
        return starts

    def _timestamps(self, deltas: pa.Int64Array) -> pa.Array:
        """Return Unix times in µs. With LogAppendTime all records of a batch have the same."""
        times = pc.add(self._each("first_timestamp"), deltas)
        if any(frame.has_append_time for frame in self._frames):
            by_log = self._timestamp_types().cast(pa.bool_())
            times = pc.if_else(by_log, self._each("max_timestamp"), times)
        return pc.multiply_checked(times, _MICROSECONDS).view(pa.timestamp("us", "UTC"))

    def _timestamp_types(self) -> pa.Int64Array:
        return self._spread([int(frame.has_append_time) for frame in self._frames])

    def _headers(self, rows: _Rows, octets: bytes) -> pa.Array:
        if pc.max(rows.header_counts).as_py() == 0:
            return pa.repeat(NO_HEADERS, self._rows)
        counts = rows.header_counts.to_pylist()
        return read_headers(octets, rows.headers_at.to_pylist(), counts)

    def _each(self, field: str) -> pa.Int64Array:
        """Return a field of the batch header for every record of the batch."""
        return self._spread([getattr(frame, field) for frame in self._frames])

    def _spread(self, values: list[int]) -> pa.Array:
        if len(values) == 1:
            return pa.repeat(values[0], self._rows)
        ends, rows = [], 0
        for frame in self._frames:
            rows += frame.record_count
            ends.append(rows)
        runs = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values))
        return pc.run_end_decode(runs)


def _parse(cursors: Cursors, size: int) -> _Rows:
    """Read the numbers of all records, and check that every part is within its record."""
    lengths = _checked(cursors.varint(), 0, size)
    ends = pc.add(cursors.positions, lengths)
    cursors.skip(_ATTRIBUTES)
    timestamp_deltas = cursors.varint()
    offset_deltas = cursors.varint()
    key = _part(cursors, size)
    value = _part(cursors, size)
    header_counts = _checked(cursors.varint(), 0, size)
    bare = pc.equal(header_counts, _NONE)
    over = pc.if_else(
        bare, pc.not_equal(cursors.positions, ends), pc.greater(cursors.positions, ends)
    )
    if pc.any(over).as_py():
        raise MalformedRecord("the parts of a record are not as long as the record")
    return _Rows(timestamp_deltas, offset_deltas, key, value, header_counts, cursors.positions)


def _part(cursors: Cursors, size: int) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Skip a key or a value; return where it begins and its length, -1 for null."""
    lengths = _checked(cursors.varint(), -1, size)
    begins = cursors.positions
    cursors.skip(pc.if_else(pc.equal(lengths, _ABSENT), _NONE, lengths))
    return begins, lengths


def _checked(numbers: pa.Int64Array, least: int, most: int) -> pa.Int64Array:
    found = pc.min_max(numbers).as_py()
    if found["min"] < least or found["max"] > most:
        raise MalformedRecord(f"a length of {found['min']} or {found['max']} bytes")
    return numbers


def _gather(section: pa.Buffer, begins: pa.Int64Array, lengths: pa.Int64Array) -> pa.BinaryArray:
    """Copy pieces of the section into a column, null where the length is -1.

    The begins and ends of pieces, interleaved, are the offsets of a binary column over the whole
    section. Every second element of that column is a piece, the others are the gaps between.
    """
    absent = pc.equal(lengths, _ABSENT)
    ends = pc.add(begins, pc.if_else(absent, _NONE, lengths))
    bounds = pc.bit_wise_or(begins, pc.shift_left(ends, _HALF_WORD))
    count = 2 * len(begins) - 1
    pieces = pa.Array.from_buffers(pa.binary(), count, [None, bounds.buffers()[1], section])
    every_second = pa.arange(0, count, 2)
    if pc.any(absent).as_py():
        every_second = pc.if_else(absent, None, every_second)
    return pieces.take(every_second)
