"""The columns of the tables in Spark's types, and the conversion of JSON rows to them.

A column has the name and the meaning of the member that the cluster exports (docs/tables.md).
Members without a fixed shape stay JSON text. Those of the audit that queries often need have
columns of their own as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import check_columns

AUDIT, PARTITIONS, BROKERS = "audit", "partitions", "brokers"
REASSIGNMENTS, GROUPS = "reassignments", "groups"

_INT, _LONG, _TEXT = IntegerType(), LongType(), StringType()
_FLAG, _TIME = BooleanType(), TimestampType()
_INTS = ArrayType(_INT)


def _struct(**members: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in members.items()])


_ROLES = _struct(leader=_INT, leader_epoch=_INT, isr=_INTS)
_CHANGE = _struct(
    topic=_TEXT, partition=_INT, reason=_TEXT, before=_ROLES, after=_ROLES, state_version=_INT
)
_OWNED = _struct(topic=_TEXT, partitions=_INTS)
_MEMBER = _struct(
    id=_TEXT,
    instance_id=_TEXT,
    client_id=_TEXT,
    topics=ArrayType(_TEXT),
    pattern=_TEXT,
    connected=_FLAG,
    owned=ArrayType(_OWNED),
)

_TABLES: dict[str, dict[str, DataType]] = {
    AUDIT: {
        "id": _LONG,
        "zxid": _LONG,
        "time": _LONG,
        "at": _TIME,
        "cause": _TEXT,
        "actor": _TEXT,
        "kind": _TEXT,
        "outcome": _TEXT,
        "reason": _TEXT,
        "resource": _TEXT,
        "before": _TEXT,
        "after": _TEXT,
        "zk": _TEXT,
        "changes": ArrayType(_CHANGE),
        "topic": _TEXT,
        "partition": _INT,
        "broker": _INT,
        "group": _TEXT,
        "config": _TEXT,
        "task": _TEXT,
        "noticed_at": _TIME,
    },
    PARTITIONS: {
        "metadata_version": _LONG,
        "topic": _TEXT,
        "topic_id": _TEXT,
        "partition": _INT,
        "leader": _INT,
        "leader_epoch": _INT,
        "isr": _INTS,
        "replicas": _INTS,
        "eligible": _INTS,
        "min_insync_replicas": _INT,
    },
    BROKERS: {
        "metadata_version": _LONG,
        "id": _INT,
        "url": _TEXT,
        "host": _TEXT,
        "port": _INT,
        "rack": _TEXT,
        "incarnation": _LONG,
        "leaders": _INT,
        "replicas": _INT,
        "directory_id": _TEXT,
        "directory_epoch": _INT,
        "misplaced": _INT,
        "release": _TEXT,
        "oldest_protocol": _INT,
        "newest_protocol": _INT,
        "draining": _FLAG,
        "stopping": _FLAG,
    },
    REASSIGNMENTS: {
        "metadata_version": _LONG,
        "topic": _TEXT,
        "partition": _INT,
        "task": _TEXT,
        "algorithm": _TEXT,
        "start": _INTS,
        "current": _INTS,
        "target": _INTS,
        "adding": _INTS,
        "removing": _INTS,
        "leader": _INT,
        "state": _TEXT,
        "reason": _TEXT,
        "waiting_for": _INTS,
        "bytes_left": _LONG,
        "cancelled": _FLAG,
    },
    GROUPS: {
        "coordinator_epoch": _LONG,
        "group": _TEXT,
        "state": _TEXT,
        "protocol": _TEXT,
        "assignor": _TEXT,
        "generation": _LONG,
        "members": ArrayType(_MEMBER),
        "last_rebalance": _TEXT,
        "rebalancing_since": _TIME,
        "last_error": _TEXT,
    },
}
TABLES = tuple(_TABLES)
_JSON = ("resource", "before", "after", "zk")
_NAMED = {"topic": str, "partition": int, "broker": int, "group": str, "config": str, "task": str}
_INT32 = 2**31
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table_schema(table: str, columns: tuple[str, ...] = ()) -> StructType:
    """Return the columns of a table, or the requested ones in the requested order.

    Raises LeadlineSparkError LEADLINE_OPTION_INVALID for an unknown column.
    """
    known = _TABLES[table]
    check_columns(columns, list(known), f"the table {table} does not have")
    return StructType([StructField(name, known[name]) for name in columns or known])


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def read_row(table: str, line: bytes) -> dict[str, Any]:
    """Return a line as a row, by column. Raises ValueError, TypeError, KeyError, AttributeError."""
    row: dict[str, Any] = json.loads(line)
    if table == AUDIT:
        return _audit_row(row)
    if table == GROUPS:
        return _group_row(row)
    return row


def batch_of(rows: Iterable[Mapping[str, Any]], schema: StructType) -> pa.RecordBatch:
    """Return rows as Arrow, without members that are no columns.

    Raises LeadlineSparkError LEADLINE_TABLE_INVALID if a value is not of its column's type.
    """
    try:
        return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(schema))
    except (ValueError, TypeError, OverflowError) as failure:
        message = f"A row has a value that its column cannot hold: {failure}"
        raise LeadlineSparkError("LEADLINE_TABLE_INVALID", message) from failure


def _audit_row(row: dict[str, Any]) -> dict[str, Any]:
    resource, after = row["resource"], row["after"]
    noticed = after.get("noticed_at") if isinstance(after, dict) else None
    texts = {name: _text(row[name]) for name in _JSON}
    # What its column cannot hold is only in the JSON column: the audit has refused requests, too,
    # and their numbers are whatever somebody has sent.
    named = {
        name: resource[name] if _holds(kind, resource.get(name)) else None
        for name, kind in _NAMED.items()
    }
    times = {"at": _time(row["time"]), "noticed_at": _time(noticed)}
    return {**row, **texts, **named, **times}


def _group_row(row: dict[str, Any]) -> dict[str, Any]:
    members = [
        {**member, "owned": [{"topic": topic, "partitions": n} for topic, n in member["owned"]]}
        for member in row["members"]
    ]
    return {**row, "members": members, "rebalancing_since": _time(row["rebalancing_since"])}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _holds(kind: type, value: Any) -> bool:
    """Return whether a column of text or 32-bit numbers can have this value."""
    if type(value) is int:
        return kind is int and -_INT32 <= value < _INT32
    return type(value) is kind


def _time(unix_ms: Any) -> datetime | None:
    """Return a time; None for what is none, or is before the year 1 or after 9999."""
    if type(unix_ms) is not int:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=unix_ms)
    except OverflowError:
        return None
