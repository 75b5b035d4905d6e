"""Checks of audit records: past states rebuilt from them, and consistency of each history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.domain.history import (
    ASSIGNMENT,
    TOPIC_DELETED,
    AuditRecord,
    PastCluster,
)


def replay(records: Iterable[AuditRecord], start: PastCluster | None = None) -> PastCluster:
    """Rebuild the cluster from records in order of their ids, starting from `start`."""
    past = start or PastCluster()
    for record in records:
        past.apply(record)
    return past


def broken_chains(records: Iterable[AuditRecord]) -> Iterator[str]:
    """Yield the inconsistencies in the histories of partitions (invariant I14).

    Each change must begin with the state that the previous one left, and write the next
    version of the state node. A partition that was deleted or removed starts over.
    """
    last: dict[tuple[str, int], StateChange] = {}
    for record in records:
        if record.entry.kind == TOPIC_DELETED:
            gone = record.entry.resource.get("topic")
            last = {name: change for name, change in last.items() if name[0] != gone}
        for name in _removed(record.entry):
            last.pop(name, None)
        for change in record.entry.changes:
            name = (change.topic, change.partition)
            before = last.get(name)
            version = 0 if before is None else before.state_version + 1
            if change.state_version != version:
                yield f"{name}: {record.id} writes version {change.state_version}, not {version}"
            if change.before != (None if before is None else before.after):
                yield f"{name}: {record.id} begins with {change.before}, not where the last ended"
            last[name] = change


def _removed(entry: AuditEntry) -> list[tuple[str, int]]:
    """Return the partitions that an entry says are gone."""
    after = entry.after if isinstance(entry.after, Mapping) else {}
    topic = str(entry.resource.get("topic"))
    assignment = after.get(ASSIGNMENT) or {}
    return [(topic, int(number)) for number, replicas in assignment.items() if replicas is None]
