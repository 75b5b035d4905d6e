"""Projections: the tables of failed brokers and tasks, derived from audit entries.

They are updated in the transaction that stores the entries. Every controller derives the
same rows, because all read the same entries in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog
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

logger = structlog.get_logger(__name__)

Projection = Callable[[Connection, AuditRecord], None]

_UNFIT: tuple[type[Exception], ...] = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(ArgumentError, DataError, IntegrityError, InterfaceError, ProgrammingError),
)
"""The errors that entries with unexpected members cause, here or in the database."""

_NO_COUNTS = dict.fromkeys(
    ("chunks", "chunks_over", "chunks_cancelled", "partitions", "partitions_moved", "bytes_moved"),
    0,
)


def project(connection: Connection, record: AuditRecord) -> None:
    """Update the derived tables with one entry.

    Operators may write tasks and entries with any content. An entry that cannot be
    projected stays in the audit and does not block the entries after it.
    """
    projection = _PROJECTIONS.get(record.entry.kind)
    if projection is None or (
        record.entry.outcome != "done" and record.entry.kind not in _PROJECTED_REFUSALS
    ):
        return
    try:
        with connection.begin_nested():
            projection(connection, record)
    except _UNFIT as problem:
        logger.error("audit entry not projected", id=record.id, reason=repr(problem))


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
    """Record that all partitions are queued; `after` counts what is left to heal."""
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
    """Record the return of a broker whose failure was recorded in ZooKeeper."""
    failed_at = _after(record)["failure_timestamp"]
    _change(connection, record.entry.resource["broker"], failed_at, returned_at=record.entry.time)


def _live(connection: Connection, record: AuditRecord) -> None:
    """Record the return of all brokers that are live again."""
    connection.execute(
        update(failed_broker)
        .where(
            failed_broker.c.broker.in_(_after(record).get("brokers", [])),
            failed_broker.c.returned_at.is_(None),
        )
        .values(returned_at=record.entry.time)
    )


def _task(connection: Connection, record: AuditRecord) -> None:
    """Store a task as of its latest entry."""
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
    """Count a chunk of a failed broker; the last chunk ends its failure."""
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
    is_complete = and_(row.queued_at.is_not(None), row.chunks_over >= row.chunks)
    connection.execute(
        update(failed_broker)
        .where(row.broker == broker, row.failed_at == failed_at, is_complete)
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


_PROJECTED_REFUSALS = ("task_refused",)
"""Refusals that end what is listed; a refused request changes nothing."""
_TASK_KINDS = ("task_launched", "task_cancelled", "task_throttled", "task_refused", "task_over")
_PROJECTIONS: dict[str, Projection] = {
    "broker_failed": _failed,
    "healing_queued": _queued,
    "broker_returned": _returned,
    "brokers_changed": _live,
    **dict.fromkeys(_TASK_KINDS, _task),
}
