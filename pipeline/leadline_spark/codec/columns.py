"""The columns of a read, with the names, order and types of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

Columns = Sequence[str]
"""Names of columns, in the order in which the reader wants them."""

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
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
