"""Failed brokers and tasks, drawn from audit entries in the transaction that stores them.

Every controller draws the same rows, because all read the same entries in the same
order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, insert, select, update
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
)

from leadline_controller.adapters.history.tables import failed_broker, task
from leadline_controller.domain.history import AuditRecord

_log = logging.getLogger(__name__)

Draw = Callable[[Connection, AuditRecord], None]

_UNFIT: tuple[type[Exception], ...] = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(ArgumentError, DataError, IntegrityError, InterfaceError, ProgrammingError),
)
"""What other members than a controller writes come to, here or in the database."""

_NO_COUNTS = dict.fromkeys(
    ("chunks", "chunks_over", "chunks_cancelled", "partitions", "partitions_moved", "bytes_moved"),
    0,
)


def draw(connection: Connection, record: AuditRecord) -> None:
    """Take one entry into the tables that are drawn from entries.

    Tasks and entries may be written by hand, and then tell anything: one that nothing
    can be drawn from keeps its place in the audit, and holds up nothing that follows.
    """
    drawing = _DRAWINGS.get(record.entry.kind)
    if drawing is None or record.entry.outcome != "done":
        return
    try:
        with connection.begin_nested():
            drawing(connection, record)
    except _UNFIT as problem:
        _log.error("audit entry %d is not in the histories: %r", record.id, problem)


def _failed(connection: Connection, record: AuditRecord) -> None:
    after, entry = _after(record), record.entry
    connection.execute(
        insert(failed_broker).values(
            broker=entry.resource["broker"],
            failed_at=after["failure_timestamp"],
            incarnation=after["incarnation"],
            detected_by=entry.actor,
            controller_epoch=after["controller_epoch"],
            **_NO_COUNTS,
        )
    )


def _queued(connection: Connection, record: AuditRecord) -> None:
    """Note that all is queued: `after` counts what is left, and some may be over already."""
    after, row = _after(record), failed_broker.c
    _change(
        connection,
        record.entry.resource["broker"],
        after["failure_timestamp"],
        queued_at=record.entry.time,
        chunks=row.chunks_over + after["chunks"],
        partitions=row.partitions_moved + after["partitions"],
        **({} if after["chunks"] else {"over_at": record.entry.time}),
    )


def _returned(connection: Connection, record: AuditRecord) -> None:
    """Note the return of a broker while its failure was noted; of others `_live` tells."""
    failed_at = _after(record)["failure_timestamp"]
    _change(connection, record.entry.resource["broker"], failed_at, returned_at=record.entry.time)


def _live(connection: Connection, record: AuditRecord) -> None:
    """Note the return of whoever is live again."""
    connection.execute(
        update(failed_broker)
        .where(
            failed_broker.c.broker.in_(_after(record).get("brokers", [])),
            failed_broker.c.returned_at.is_(None),
        )
        .values(returned_at=record.entry.time)
    )


def _task(connection: Connection, record: AuditRecord) -> None:
    """Keep a task as its latest entry has it."""
    after, entry = _after(record), record.entry
    task_id = entry.resource.get("task")
    if not task_id:
        return
    values = {
        "kind": entry.resource.get("kind", ""),
        "reason": entry.reason,
        "state": after["state"],
        "created_at": after.get("created_at", 0),
        "finished_at": after.get("finished_at", 0),
        "total": after.get("total", 0),
        "outcome": _text(after.get("outcome", {})),
        "details": _text(after.get("details", {})),
    }
    known = connection.scalar(select(task.c.state).where(task.c.id == task_id))
    if known is None:
        connection.execute(
            insert(task).values(id=task_id, actor=entry.actor, cause=entry.cause, **values)
        )
    else:
        connection.execute(update(task).where(task.c.id == task_id).values(**values))
    if entry.kind == "task_over" and values["kind"] == "heal":
        _chunk_over(connection, record, after)


def _chunk_over(connection: Connection, record: AuditRecord, after: Mapping[str, Any]) -> None:
    """Count a chunk of a failed broker; its history ends with the last of them."""
    details, outcome = after["details"], after["outcome"]
    broker, failed_at = details["broker"], details["failure_timestamp"]
    row = failed_broker.c
    is_cancelled = after["state"] == "cancelled"
    _change(
        connection,
        broker,
        failed_at,
        chunks_over=row.chunks_over + 1,
        chunks_cancelled=row.chunks_cancelled + int(is_cancelled),
        partitions_moved=row.partitions_moved + outcome.get("done", 0),
        bytes_moved=row.bytes_moved + outcome.get("bytes", 0),
    )
    is_whole = and_(row.queued_at.is_not(None), row.chunks_over >= row.chunks)
    connection.execute(
        update(failed_broker)
        .where(row.broker == broker, row.failed_at == failed_at, is_whole)
        .values(over_at=record.entry.time)
    )


def _change(connection: Connection, broker: int, failed_at: int, **values: Any) -> None:
    connection.execute(
        update(failed_broker)
        .where(failed_broker.c.broker == broker, failed_broker.c.failed_at == failed_at)
        .values(**values)
    )


def _after(record: AuditRecord) -> Mapping[str, Any]:
    after = record.entry.after
    return after if isinstance(after, Mapping) else {}


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_TASK_KINDS = ("task_launched", "task_cancelled", "task_throttled", "task_refused", "task_over")
_DRAWINGS: dict[str, Draw] = {
    "broker_failed": _failed,
    "healing_queued": _queued,
    "broker_returned": _returned,
    "brokers_changed": _live,
    **dict.fromkeys(_TASK_KINDS, _task),
}
