"""Conversion between audit records and rows of the tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import RowMapping

from leadline_common.settings.fields import INT32_MAX
from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.domain.history import (
    AuditRecord,
    PartitionChange,
    TaskRecord,
    resource_of,
)

_encoder = msgspec.json.Encoder()
_Roles = tuple[int, int, tuple[int, ...]]
_decoder: msgspec.json.Decoder[_Roles] = msgspec.json.Decoder(_Roles)


def audit_row(record: AuditRecord) -> dict[str, Any]:
    """Return a record's row of `audit`."""
    entry, about = record.entry, resource_of(record.entry)
    return {
        "id": record.id,
        "zxid": record.zxid,
        "time": entry.time,
        "cause": _fit(entry.cause),
        "actor": _fit(entry.actor),
        "kind": _fit(entry.kind, 64),
        "outcome": _fit(entry.outcome, 32),
        "reason": _fit(entry.reason, None),
        "topic": _fit(about.topic),
        "partition": _fit_number(about.partition),
        "broker": _fit_number(about.broker),
        "group_name": _fit(about.group),
        "config": _fit(about.config),
        "resource": _text(entry.resource),
        "before": None if entry.before is None else _text(entry.before),
        "after": None if entry.after is None else _text(entry.after),
        "zk": _text(entry.zk),
        "changes": len(entry.changes),
    }


def _fit(text: str | None, most: int | None = 255) -> str | None:
    """Truncate a text to the size of its column, and replace NUL, which some databases refuse.

    A refused request may contain any text; `resource` keeps all of it, as JSON.
    """
    return None if text is None else text[:most].replace("\0", "\ufffd")


def _fit_number(number: int | None) -> int | None:
    """Return a number if it fits into a 32-bit column, else None."""
    return number if number is not None and -INT32_MAX <= number <= INT32_MAX else None


def change_rows(record: AuditRecord) -> Iterable[dict[str, Any]]:
    """Yield a record's rows of `state_change`."""
    for position, change in enumerate(record.entry.changes):
        yield {
            "audit_id": record.id,
            "position": position,
            "topic": _fit(change.topic),
            "partition": change.partition,
            "reason": _fit(change.reason, 64),
            "before": None if change.before is None else _text(change.before),
            "after": _text(change.after),
            "state_version": change.state_version,
        }


def record_of(row: RowMapping, changes: Sequence[RowMapping]) -> AuditRecord:
    """Return the record of a row of `audit` and its rows of `state_change`, in order."""
    entry = AuditEntry(
        time=row["time"],
        cause=row["cause"],
        actor=row["actor"],
        kind=row["kind"],
        outcome=row["outcome"],
        reason=row["reason"],
        resource=_value(row["resource"]),
        before=_value(row["before"]),
        after=_value(row["after"]),
        zk=_value(row["zk"]),
        changes=tuple(change_of(change) for change in changes),
    )
    return AuditRecord(row["id"], row["zxid"], entry)


def change_of(row: RowMapping) -> StateChange:
    """Return the change of a row of `state_change`."""
    return StateChange(
        row["topic"],
        row["partition"],
        row["reason"],
        None if row["before"] is None else _roles(row["before"]),
        _roles(row["after"]),
        row["state_version"],
    )


def partition_change_of(row: RowMapping) -> PartitionChange:
    """Return a change with members of its entry, from a row of both tables joined."""
    entry = {name: row[name] for name in PartitionChange.__struct_fields__ if name != "change"}
    return PartitionChange(**entry, change=change_of(row))


def task_record_of(row: RowMapping) -> TaskRecord:
    """Return the record of a row of `task`."""
    nested = {name: _value(row[name]) for name in ("outcome", "details")}
    return TaskRecord(**{**row, **nested})


def _text(value: Any) -> str:
    return _encoder.encode(value).decode()


def _value(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _roles(text: str) -> _Roles:
    return _decoder.decode(text)
