"""Encode Arrow columns as record batches: each part of a record is a column, and Arrow joins them.

No code runs once per record. Headers are joined as lists, and large numbers are encoded once for
each distinct value.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.batch_header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    CRC_RANGE_START,
    HEADER_BYTES,
    LAYOUT,
    MAGIC,
    SIZE_PREFIX,
)
from leadline_client.columnar.checksum import crc32c
from leadline_client.columnar.compression import NUMBERS, compress
from leadline_client.columnar.varints import varint, varints

NO_PRODUCER = (-1, -1)
NO_SEQUENCE = -1
RECORD_OVERHEAD = 20
"""The approximate size of a record without its key, value and headers, in bytes."""

_NOTHING = pa.scalar(b"", pa.binary())
_NO_ATTRIBUTES = pa.scalar(b"\0", pa.binary())


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one partition as columns of equal length.

    `key` and `value` are binary and may be null (a null value is a tombstone). `headers` holds
    lists of structs of a name and a value, or is None if no record has headers. `timestamps` are
    Unix times in ms, or None for the time of writing.
    """

    key: pa.Array
    value: pa.Array
    headers: pa.Array | None = None
    timestamps: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.value)

    def slice(self, start: int, count: int) -> Records:
        """Return a range of the records without copying them."""
        return Records(
            *(None if column is None else column.slice(start, count) for column in self._columns())
        )

    def take(self, rows: pa.Array) -> Records:
        """Return the records at these positions."""
        return Records(
            *(None if column is None else column.take(rows) for column in self._columns())
        )

    def sizes(self) -> pa.Int64Array:
        """Return the approximate uncompressed size of each record in a batch, in bytes."""
        sizes = pc.add(_length(self.key), _length(self.value))
        if self.headers is not None:
            sizes = pc.add(sizes, pc.binary_length(joined_headers(self.headers)).cast(pa.int64()))
        return pc.add(sizes, pa.scalar(RECORD_OVERHEAD, pa.int64()))

    def split(self, most_bytes: int) -> Iterator[Records]:
        """Yield the records in pieces of at most `most_bytes`, or of one larger record."""
        ends = pc.cumulative_sum(self.sizes())
        start = 0
        while start < len(self):
            before = ends[start - 1].as_py() if start else 0
            stop = bisect.bisect_right(
                ends, before + most_bytes, start, key=lambda end: end.as_py()
            )
            stop = max(stop, start + 1)
            yield self.slice(start, stop - start)
            start = stop

    def _columns(self) -> tuple[pa.Array, pa.Array, pa.Array | None, pa.Array | None]:
        return self.key, self.value, self.headers, self.timestamps


def concat(pieces: list[Records]) -> Records:
    """Return the records of all pieces, in order.

    A piece may lack headers or timestamps that others have: its records then have none.
    """
    if len(pieces) == 1:
        return pieces[0]
    lengths = [len(piece) for piece in pieces]
    columns = zip(*(piece._columns() for piece in pieces), strict=True)
    return Records(*(_joined_column(parts, lengths) for parts in columns))


def _joined_column(parts: Sequence[pa.Array | None], lengths: Sequence[int]) -> pa.Array | None:
    """Return the parts of a column, of these lengths, as one; None if all are."""
    kind = next((part.type for part in parts if part is not None), None)
    if kind is None:
        return None
    return pa.concat_arrays(
        pa.nulls(length, kind) if part is None else part
        for part, length in zip(parts, lengths, strict=True)
    )


def encode(
    records: Records,
    *,
    now_ms: int,
    producer: tuple[int, int] = NO_PRODUCER,
    base_sequence: int = NO_SEQUENCE,
    codec: str = "none",
) -> bytes:
    """Return one batch of format v2. `records` holds at least one; the leader assigns offsets.

    `producer` is a producer id and epoch. Raises pyarrow's ArrowInvalid beyond 2 GiB.
    """
    first, latest, deltas = _times(records.timestamps, now_ms)
    section = compress(_section(records, deltas), codec)
    count = len(records)
    size = HEADER_BYTES + section.size
    batch = bytearray(size)
    fields = (NUMBERS[codec], count - 1, first, latest, *producer, base_sequence, count)
    LAYOUT.pack_into(batch, 0, 0, size - SIZE_PREFIX, -1, MAGIC, 0, *fields)
    batch[HEADER_BYTES:] = memoryview(section).cast("B")
    crc = crc32c(memoryview(batch)[CRC_RANGE_START:])
    LAYOUT.pack_into(batch, 0, 0, size - SIZE_PREFIX, -1, MAGIC, crc, *fields)
    return bytes(batch)


def append_time(batch: bytes) -> bytes:
    """Return the batch with timestamp type LogAppendTime: all records have its latest timestamp."""
    marked = bytearray(batch)
    marked[ATTRIBUTES_POSITION + 1] |= APPEND_TIME_BIT
    crc = crc32c(memoryview(marked)[CRC_RANGE_START:])
    marked[CRC_POSITION : CRC_POSITION + 4] = crc.to_bytes(4, "big")
    return bytes(marked)


def _times(timestamps: pa.Array | None, now_ms: int) -> tuple[int, int, pa.Array | pa.Scalar]:
    """Return the first and the latest timestamp, and the encoded delta of each record."""
    if timestamps is None:
        return now_ms, now_ms, pa.scalar(varint(0), pa.binary())
    times = timestamps.fill_null(now_ms)
    first = times[0].as_py()
    return first, pc.max(times).as_py(), varints(pc.subtract(times, first))


def _section(records: Records, deltas: pa.Array | pa.Scalar) -> pa.Buffer:
    parts = [
        _NO_ATTRIBUTES,
        deltas,
        varints(pa.arange(0, len(records))),
        varints(_length(records.key, absent=-1)),
        records.key,
        varints(_length(records.value, absent=-1)),
        records.value,
        _headers(records.headers),
    ]
    lengths = _length(parts[0])
    for part in parts[1:]:
        lengths = pc.add(lengths, _length(part))
    return _content(_join(varints(lengths), *parts))


def _headers(headers: pa.Array | None) -> pa.Array | pa.Scalar:
    """Return the encoded number of headers and the headers of each record."""
    if headers is None:
        return pa.scalar(varint(0), pa.binary())
    counts = pc.list_value_length(headers).cast(pa.int64()).fill_null(0)
    return _join(varints(counts), joined_headers(headers))


def joined_headers(headers: pa.Array) -> pa.Array:
    """Return the encoded headers of each record, without their number."""
    pairs = headers.flatten()
    name, value = (pairs.field(index) for index in (0, 1))
    name = name.cast(pa.binary())
    each = _join(varints(_length(name)), name, varints(_length(value, absent=-1)), value)
    counts = pc.list_value_length(headers).fill_null(0)
    bounds = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    return pc.binary_join(pa.ListArray.from_arrays(bounds, each), _NOTHING)


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Concatenate the parts of each record; null counts as empty."""
    return pc.binary_join_element_wise(
        *parts, _NOTHING, null_handling="replace", null_replacement=b""
    )


def _length(part: pa.Array | pa.Scalar, absent: int = 0) -> pa.Array | pa.Scalar:
    lengths = pc.binary_length(part).cast(pa.int64())
    return lengths.fill_null(absent) if isinstance(lengths, pa.Array) else lengths


def _content(column: pa.BinaryArray) -> pa.Buffer:
    """Return the elements of a column, which are adjacent in memory."""
    _, offsets, octets = column.buffers()
    bounds = memoryview(offsets).cast("B").cast("i")
    first, last = bounds[column.offset], bounds[column.offset + len(column)]
    return octets.slice(first, last - first)
