"""The columns of a read, with the names, order and types of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from leadline_spark.codec.varints import MalformedRecord, varint_at

Columns = Sequence[str]
"""Names of columns, in the order in which the reader wants them."""

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
NO_HEADERS = pa.scalar([], HEADERS)
"""The value of the column for a record without headers: an empty list."""

TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "leaderEpoch": pa.int32(),
}
"""All columns. A timestampType is 0 for CreateTime, 1 for LogAppendTime."""


def schema(wanted: Columns) -> pa.Schema:
    """Return the Arrow schema of these columns. Spark accepts exactly these types."""
    return pa.schema([pa.field(name, TYPES[name]) for name in wanted])


def read_headers(octets: bytes, positions: list[int], counts: list[int]) -> pa.ListArray:
    """Decode the headers of records: `counts[i]` headers, which begin at `positions[i]`.

    Names that are not valid UTF-8 are decoded with replacement characters, as in Kafka. A loop is
    fast enough, as few records have headers. Raises MalformedRecord and IndexError.
    """
    bounds, names, values = [0], [], []
    for start, count in zip(positions, counts, strict=True):
        position = start
        for _ in range(count):
            name, position = _bytes_at(octets, position)
            value, position = _bytes_at(octets, position)
            if name is None:
                raise MalformedRecord("a header has no name")
            names.append(name.decode("utf-8", "replace"))
            values.append(value)
        bounds.append(len(names))
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"]
    )
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pairs).cast(HEADERS)


def _bytes_at(octets: bytes, position: int) -> tuple[bytes | None, int]:
    length, begin = varint_at(octets, position)
    if length == -1:
        return None, begin
    if length < 0 or begin + length > len(octets):
        raise MalformedRecord(f"a header of {length} bytes")
    return octets[begin : begin + length], begin + length
