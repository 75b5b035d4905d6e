"""The exported form of audit entries: one JSON object per line, in the order of their ids.

`GET /v1/audit/export` sends it; other controllers and the analytics job read it. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from leadline_common.znodes import AuditEntry, StateChange

EXPORT_PATH = "/v1/audit/export"
NDJSON = "application/x-ndjson"
HEAD_HEADER = "Leadline-Audit-Head"
"""Header of an export: the newest id that the controller has stored."""
OLDEST_HEADER = "Leadline-Audit-Oldest"
"""Header of an export: the oldest id that the controller still has."""


class ExportedRoles(msgspec.Struct, frozen=True):
    """Leader, leader epoch and ISR of a partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class ExportedChange(msgspec.Struct, frozen=True):
    """One partition's change in an entry; `before` is None if the entry created the state."""

    topic: str
    partition: int
    reason: str
    before: ExportedRoles | None
    after: ExportedRoles
    state_version: int


class ExportedEntry(msgspec.Struct, frozen=True):
    """An audit entry. Ids have no gaps; `zxid` is the ZooKeeper transaction of the change.

    `time` is in Unix ms.
    """

    id: int
    zxid: int
    time: int
    cause: str
    actor: str
    kind: str
    outcome: str
    reason: str
    resource: Mapping[str, Any]
    before: Any
    after: Any
    zk: Mapping[str, int]
    changes: tuple[ExportedChange, ...]


_entry = msgspec.json.Decoder(ExportedEntry)


def exported(audit_id: int, zxid: int, entry: AuditEntry) -> ExportedEntry:
    """Return an entry in its exported form."""
    members = msgspec.structs.asdict(entry) | {
        "changes": tuple(map(exported_change, entry.changes))
    }
    del members["version"]
    return ExportedEntry(audit_id, zxid, **members)


def exported_change(change: StateChange) -> ExportedChange:
    """Return a partition's change in its exported form."""
    return ExportedChange(
        change.topic,
        change.partition,
        change.reason,
        None if change.before is None else ExportedRoles(*change.before),
        ExportedRoles(*change.after),
        change.state_version,
    )


def imported(entry: ExportedEntry) -> AuditEntry:
    """Return the audit entry of an exported one."""
    members = msgspec.structs.asdict(entry) | {
        "changes": tuple(map(_imported_change, entry.changes))
    }
    del members["id"], members["zxid"]
    return AuditEntry(**members)


def _imported_change(change: ExportedChange) -> StateChange:
    before, after = change.before, change.after
    return StateChange(
        change.topic,
        change.partition,
        change.reason,
        None if before is None else (before.leader, before.leader_epoch, before.isr),
        (after.leader, after.leader_epoch, after.isr),
        change.state_version,
    )


def encode_lines(entries: Iterable[ExportedEntry]) -> bytes:
    """Return entries as lines of JSON."""
    return msgspec.json.Encoder().encode_lines(list(entries))


def decode_line(line: bytes) -> ExportedEntry:
    """Return the entry of a line.

    Raises:
        msgspec.MsgspecError: the line is not an entry.

    """
    return _entry.decode(line)
