"""The columns of records, with the names that Spark's Kafka source gives them.

`key` and `value` are binary, `topic` is text, `partition` and `leaderEpoch` have 32 bits, `offset`
has 64. A `timestamp` is in ms or µs, a `timestampType` is 0 for CreateTime and 1 for LogAppendTime,
`headers` are a list of structs of a text and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.columnar.cursors import Cursors
from leadline_client.columnar.headers import no_headers, read_headers
from leadline_client.columnar.layout import Layout
from leadline_client.columnar.record_fields import Fields, read_fields
from leadline_client.columnar.sections import Section, spread, starts_of
from leadline_client.unreadable import UnreadableRecords

_TICKS: Final = {unit: pa.scalar(ticks, pa.int64()) for unit, ticks in (("ms", 1), ("us", 1_000))}
"""Ticks of the units of a column of timestamps in a ms."""


def record_batch(
    octets: bytes, sections: Sequence[Section], start: int, end: int, layout: Layout
) -> pa.RecordBatch:
    """Return the records of sections in `octets` with `start <= offset < end`.

    Raises UnreadableRecords, and pyarrow's errors for numbers beyond their columns.
    """
    buffer = pa.py_buffer(octets)
    cursors = Cursors(buffer, starts_of(octets, sections))
    records = _Records(octets, buffer, sections, read_fields(cursors, len(octets)))
    _check_offsets(sections, records.fields.offset_deltas)
    offsets = records.offset(pa.int64(), layout)
    arrays = [_COLUMNS[one.name](records, one.type, layout) for one in layout.schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=layout.schema)
    found = pc.min_max(offsets)
    if start <= found["min"].as_py() and found["max"].as_py() < end:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))


def _check_offsets(sections: Sequence[Section], deltas: pa.Array) -> None:
    """Raise UnreadableRecords unless the offsets of each batch count from its first one."""
    firsts = list(accumulate((one.header.record_count for one in sections[:-1]), initial=0))
    rows = pa.arange(0, len(deltas), 1)
    if not pc.all(pc.equal(pc.subtract(rows, spread(sections, firsts)), deltas)).as_py():
        raise UnreadableRecords("offsets inside the batch are not consecutive")


@dataclass(frozen=True, slots=True)
class _Records:
    octets: bytes
    buffer: pa.Buffer
    sections: Sequence[Section]
    fields: Fields

    @property
    def count(self) -> int:
        return len(self.fields.ends)

    def key(self, _kind: pa.DataType, _layout: Layout) -> pa.Array:
        return self.fields.key.gather(self.buffer)

    def value(self, _kind: pa.DataType, _layout: Layout) -> pa.Array:
        return self.fields.value.gather(self.buffer)

    def topic(self, kind: pa.DataType, layout: Layout) -> pa.Array:
        return pa.repeat(pa.scalar(layout.topic, kind), self.count)

    def partition(self, kind: pa.DataType, layout: Layout) -> pa.Array:
        return pa.repeat(pa.scalar(layout.partition, kind), self.count)

    def offset(self, _kind: pa.DataType, _layout: Layout) -> pa.Array:
        bases = [section.header.base_offset for section in self.sections]
        return pc.add(spread(self.sections, bases), self.fields.offset_deltas)

    def timestamp(self, kind: pa.TimestampType, _layout: Layout) -> pa.Array:
        """Return Unix times. With LogAppendTime all records of a batch have the same."""
        headers = [section.header for section in self.sections]
        first = spread(self.sections, [header.first_timestamp for header in headers])
        times = pc.add(first, self.fields.timestamp_deltas)
        if any(header.has_append_time for header in headers):
            latest = spread(self.sections, [header.max_timestamp for header in headers])
            times = pc.if_else(self._append_times().cast(pa.bool_()), latest, times)
        if kind.unit != "ms":
            times = pc.multiply_checked(times, _TICKS[kind.unit])
        return times.view(kind)

    def timestamp_type(self, kind: pa.DataType, _layout: Layout) -> pa.Array:
        return self._append_times().cast(kind)

    def leader_epoch(self, kind: pa.DataType, _layout: Layout) -> pa.Array:
        epochs = [section.header.leader_epoch for section in self.sections]
        return spread(self.sections, epochs).cast(kind)

    def headers(self, kind: pa.ListType, layout: Layout) -> pa.Array:
        counts, ends = self.fields.header_counts, self.fields.ends
        if pc.max(counts).as_py() == 0:
            return no_headers(self.count, kind)
        begins = self.fields.headers_at.to_pylist()
        found, reached = read_headers(
            self.octets, begins, counts.to_pylist(), kind, layout.name_errors
        )
        if reached != ends.to_pylist():
            raise UnreadableRecords("a record does not end where its length says")
        return found

    def _append_times(self) -> pa.Int64Array:
        return spread(self.sections, [int(one.header.has_append_time) for one in self.sections])


_COLUMNS: Final[dict[str, Callable[[_Records, pa.DataType, Layout], pa.Array]]] = {
    "key": _Records.key,
    "value": _Records.value,
    "topic": _Records.topic,
    "partition": _Records.partition,
    "offset": _Records.offset,
    "timestamp": _Records.timestamp,
    "timestampType": _Records.timestamp_type,
    "headers": _Records.headers,
    "leaderEpoch": _Records.leader_epoch,
}
