"""The columns of a read, in the order and with the types of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

Columns = Sequence[str]
"""Names of columns that a reader wants, in the order in which it wants them."""

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
"""Every column that there is. A timestampType is 0 for the producer's clock, 1 for the log's."""


def schema(wanted: Columns) -> pa.Schema:
    """Return what record batches of these columns have: Spark accepts no other type for each."""
    return pa.schema([pa.field(name, TYPES[name]) for name in wanted])
