"""The numbers of many records, and the positions of their keys, values and headers."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.columnar.cursors import Cursors
from leadline_client.unreadable import UnreadableRecords

_INDEX = pa.int32()
_NONE = pa.scalar(0, _INDEX)
_NULL = pa.scalar(-1, _INDEX)
_UNKNOWN_ATTRIBUTES = 0x80
_HALF_WORD = pa.scalar(32, pa.int64())


@dataclass(frozen=True, slots=True)
class Part:
    """Where the keys or the values of records begin, and their lengths, negative for null."""

    begins: pa.Int32Array
    lengths: pa.Int32Array

    def gather(self, octets: pa.Buffer) -> pa.BinaryArray:
        """Copy the parts into a column.

        The begins and ends of parts, interleaved, are the offsets of a binary column over all
        bytes. Every second element of that column is a part, the others are the gaps between.
        """
        has_absent = pc.min(self.lengths).as_py() < 0
        lengths = pc.max_element_wise(self.lengths, _NONE) if has_absent else self.lengths
        ends = pc.add(self.begins, lengths).cast(pa.int64())
        bounds = pc.bit_wise_or(self.begins.cast(pa.int64()), pc.shift_left(ends, _HALF_WORD))
        count = 2 * len(self.begins) - 1
        pieces = pa.Array.from_buffers(pa.binary(), count, [None, bounds.buffers()[1], octets])
        every_second = pa.arange(0, count, 2)
        if has_absent:
            every_second = pc.if_else(pc.less(self.lengths, _NONE), None, every_second)
        return pieces.take(every_second)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of records. `ends` is where each record ends, by its length."""

    timestamp_deltas: pa.Array
    offset_deltas: pa.Array
    key: Part
    value: Part
    header_counts: pa.Int32Array
    headers_at: pa.Int32Array
    ends: pa.Int32Array


def read_fields(cursors: Cursors, size: int) -> Fields:
    """Read the fields of records in `size` bytes, and check that each part is within its record.

    Raises UnreadableRecords.
    """
    lengths = _checked(cursors.number(), 0, size)
    ends = pc.add(cursors.positions, lengths)
    # Some codecs read the attributes, which mean nothing, as a number of several bytes: if they
    # were, two readers would see two records.
    if pc.max(cursors.octet()).as_py() >= _UNKNOWN_ATTRIBUTES:
        raise UnreadableRecords("a record has unknown attributes")
    timestamp_deltas = cursors.number()
    offset_deltas = cursors.number()
    key = _part(cursors, size)
    value = _part(cursors, size)
    header_counts = _checked(cursors.number(), 0, size)
    bare = pc.equal(header_counts, _NONE)
    over = pc.if_else(
        bare, pc.not_equal(cursors.positions, ends), pc.greater(cursors.positions, ends)
    )
    if pc.any(over).as_py():
        raise UnreadableRecords("the parts of a record are not as long as the record")
    return Fields(
        timestamp_deltas, offset_deltas, key, value, header_counts, cursors.positions, ends
    )


def _part(cursors: Cursors, size: int) -> Part:
    # Any negative length means null, as in Kafka.
    lengths = _checked(pc.max_element_wise(cursors.number(), _NULL), -1, size)
    begins = cursors.positions
    cursors.skip(pc.max_element_wise(lengths, _NONE))
    return Part(begins, lengths)


def _checked(numbers: pa.Array, least: int, most: int) -> pa.Int32Array:
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low < least or high > most:
        raise UnreadableRecords(f"a length of {low} or {high} bytes")
    return numbers.cast(_INDEX)
