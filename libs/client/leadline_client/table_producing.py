"""Rows of Arrow tables and pandas data frames as records (extras `arrow` and `pandas`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from leadline_client.errors import InvalidRequest, SerializationFailed
from leadline_client.extras import MissingExtra
from leadline_client.sent_records import RecordMetadata
from leadline_client.sync_producer import Producer

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingExtra("arrow", "Arrow tables") from error

# They import pyarrow, too.
from leadline_client.columnar.encode import Records
from leadline_client.table_sending import TableSender, binary_column

_JSON_ROWS: Final = 1000
_COLUMN_ROWS: Final = 1 << 14


def produce_table(
    producer: Producer,
    topic: str,
    table: Any,
    *,
    key: str | None = None,
    value: str | None = None,
    partition: int | None = None,
) -> int:
    """Append a record for each row, in order, and return how many are acknowledged.

    `table`: an Arrow Table, RecordBatch or RecordBatchReader, or a pandas DataFrame, whose index is
    left out. `key` and `value` name columns of bytes or text (UTF-8); a null is a record without
    one. Without `value`, the value is a JSON object of all columns but `key`, with times in ISO
    8601 and decimals as text. `partition`: all rows go there; by default the key decides.

    Rows become batches without an object for each; a producer with serializers gets them one by
    one. Batches are sent while further rows are read, so that a reader of any length needs little
    memory.

    Raises:
        InvalidRequest: there is no such column, or it holds neither bytes nor text. Nothing was
            sent.
        SerializationFailed: a row has no JSON, for instance because of a NaN or of bytes. The rows
            of thousands before it were sent.
        LeadlineError: a record was refused, or its outcome is unknown. Rows before and after it
            may have been appended.

    """
    reader = _reader(table)
    names = _value_columns(reader.schema, key, value)
    chunks = (
        Records(
            pa.nulls(len(batch), pa.binary()) if key is None else binary_column(batch.column(key)),
            _json(batch, names, first) if value is None else binary_column(batch.column(value)),
        )
        for first, batch in _numbered(reader, _JSON_ROWS if value is None else _COLUMN_ROWS)
    )
    if producer.serializes:
        return _send_each(producer, topic, partition, chunks)
    sender = TableSender(producer, topic, partition)
    try:
        for records in chunks:
            sender.add(records)
    except SerializationFailed:
        sender.finish()
        raise
    return sender.finish()


def _send_each(
    producer: Producer[Any, Any], topic: str, partition: int | None, chunks: Iterator[Records]
) -> int:
    """Send records one by one, each through the serializers of the producer."""
    waiting: list[Future[RecordMetadata]] = []
    appended = 0
    for records in chunks:
        pairs = zip(records.key.to_pylist(), records.value.to_pylist(), strict=True)
        sent = [producer.send(topic, one, key=own, partition=partition) for own, one in pairs]
        appended += len([future.result() for future in waiting])
        waiting = sent
    producer.flush()
    return appended + len([future.result() for future in waiting])


def _reader(table: Any) -> pa.RecordBatchReader:
    if isinstance(table, pa.RecordBatchReader):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(table.schema, [table])
    if not isinstance(table, pa.Table):
        table = pa.Table.from_pandas(table, preserve_index=False)
    return table.to_reader()


def _value_columns(schema: pa.Schema, key: str | None, value: str | None) -> list[str]:
    """Return the columns of the JSON object. Raises InvalidRequest for a wrong key or value."""
    for name in (key, value):
        if name is None:
            continue
        if schema.names.count(name) != 1:
            raise InvalidRequest(f"the table has not one column {name!r}: {schema.names}")
        kind = schema.field(name).type
        if not any(is_kind(kind) for is_kind in _BYTES_OR_TEXT):
            raise InvalidRequest(f"the column {name!r} holds {kind}, neither bytes nor text")
    names = [name for name in schema.names if name != key]
    if value is None and len(set(names)) < max(1, len(names)):
        raise InvalidRequest(f"a JSON object needs columns of different names, not {names}")
    return names


_BYTES_OR_TEXT: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
)


def _numbered(reader: pa.RecordBatchReader, most: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of at most so many rows, each with the number of its first row."""
    first = 0
    for batch in reader:
        for start in range(0, len(batch), most):
            chunk = batch.slice(start, most)
            yield first, chunk
            first += len(chunk)


def _json(batch: pa.RecordBatch, names: Sequence[str], first: int) -> pa.BinaryArray:
    rows = enumerate(_rows(batch.select(names), first), first)
    return pa.array([_row_json(number, row) for number, row in rows], pa.binary())


def _rows(batch: pa.RecordBatch, first: int) -> list[dict[str, Any]]:
    """Return rows as Python's objects.

    Raises SerializationFailed, which names the first that cannot be: times beyond the year 9999 or
    finer than a µs, text that is not UTF-8.
    """
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException) as error:
        if len(batch) == 1:
            raise SerializationFailed(f"row {first} has no JSON: {error}", row=first) from error
        middle = len(batch) // 2
        before = _rows(batch.slice(0, middle), first)
        return before + _rows(batch.slice(middle), first + middle)
    return rows


def _row_json(number: int, row: dict[str, Any]) -> bytes:
    """Return a row as JSON. Raises SerializationFailed, which names it."""
    try:
        text = json.dumps(
            row, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise SerializationFailed(f"row {number} has no JSON: {error}", row=number) from error


def _plain(value: object) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")
