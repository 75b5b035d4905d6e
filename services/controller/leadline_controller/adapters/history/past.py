"""Past states of the cluster, from the few entries of the history that still matter then.

Most entries only change leaders and ISRs, and only the latest change of each partition is seen in
a past state. So the database finds that change for every partition in its index. The other entries
are replayed: those that say more than their changes, such as which replicas a partition has. The
result is that of replaying every entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.adapters.history import rows
from leadline_controller.adapters.history.lookups import (
    doubt_about,
    kept_snapshot,
    kind_after,
    last_restore,
    last_transaction,
)
from leadline_controller.adapters.history.tables import audit, state_change
from leadline_controller.domain.history import (
    ALWAYS_REPLAYED_KINDS,
    EXTERNAL,
    HISTORY_GAP,
    UNKNOWN,
    AuditRecord,
    PastCluster,
)

_PAGE = 1_000
_REPLAYED = (
    *(audit.c.id, audit.c.zxid, audit.c.time, audit.c.actor, audit.c.kind, audit.c.outcome),
    *(audit.c.reason, audit.c.resource, audit.c.after),
)
_SAYS_MORE = or_(
    audit.c.after.is_not(None),
    audit.c.resource != "{}",
    audit.c.kind.in_(sorted(ALWAYS_REPLAYED_KINDS)),
    and_(audit.c.actor == EXTERNAL, audit.c.outcome == UNKNOWN),
)
"""Entries that say more than their changes."""


def past_state(connection: Connection, *, time_ms: int | None, zxid: int | None) -> PastCluster:
    """Rebuild the cluster at a time or after a transaction; None means now.

    All ids of the result are -1 if that is older than everything that is stored. The connection
    must show the database as of one moment.
    """
    bounds: list[ColumnElement[bool]] = []
    if time_ms is not None:
        bounds.append(audit.c.time <= time_ms)
    restored = last_restore(connection)
    if zxid is not None:
        bounds += [audit.c.zxid.between(1, zxid), audit.c.id >= restored]  # a gap has no zxid
    # Clocks of writers differ; the order of ids is the order of the transactions.
    newest = connection.scalar(select(func.max(audit.c.id)).where(*bounds))
    if newest is None:
        kept = kept_snapshot(connection)
        is_older = (time_ms is not None and kept.time > time_ms) or (
            zxid is not None and (kept.zxid > zxid or restored > 0)
        )
        return PastCluster() if is_older else kept
    past = state_after(connection, newest)
    if bounds and kind_after(connection, newest) == HISTORY_GAP:
        past.miss("audit entries are lost, which may belong to this past")
    if bounds and (reason := doubt_about(connection, newest)):
        past.miss(reason)
    return past


def state_after(connection: Connection, newest: int) -> PastCluster:
    """Rebuild the cluster after the stored entry with the id `newest`."""
    past = kept_snapshot(connection)
    changes = deque(_latest_changes(connection, newest))
    for record in _replayed(connection, past.audit_id, newest):
        while changes and changes[0][0] < record.id:
            past.set_state(changes.popleft()[1])
        past.apply(record)
    for _, change in changes:
        past.set_state(change)
    return past


def _latest_changes(connection: Connection, newest: int) -> Iterator[tuple[int, StateChange]]:
    """Yield the latest change of each partition with the id of its entry, in their order.

    Whatever is in the kept snapshot has been deleted, so this needs no lower bound.
    """
    # The sum keeps SQLite from reading the changes in the order of ids, and grouping them then.
    # It reads all it needs from the index of partitions: a fifth of the time.
    until = state_change.c.audit_id + 0 <= newest
    names = (state_change.c.topic, state_change.c.partition)
    latest = select(*names, func.max(state_change.c.audit_id).label("audit_id"))
    found = latest.where(until).group_by(*names).subquery()
    same = and_(
        state_change.c.topic == found.c.topic,
        state_change.c.partition == found.c.partition,
        state_change.c.audit_id == found.c.audit_id,
    )
    wanted = select(state_change).join(found, same)
    ordered = wanted.order_by(state_change.c.audit_id, state_change.c.position)
    for row in connection.execute(ordered).mappings():
        yield row["audit_id"], rows.change_of(row)


def _replayed(connection: Connection, after: int, newest: int) -> Iterator[AuditRecord]:
    """Yield the entries that say more than their changes, without these, in their order.

    The last entry and that of the last transaction are always among them: they have the id, the
    transaction and the time of the past state.
    """
    ends = audit.c.id.in_([newest, last_transaction(connection, newest)])
    wanted = select(*_REPLAYED).where(audit.c.id <= newest, or_(_SAYS_MORE, ends))
    ordered = wanted.order_by(audit.c.id).limit(_PAGE)
    while page := connection.execute(ordered.where(audit.c.id > after)).all():
        for number, zxid, time, actor, kind, outcome, reason, resource, told in page:
            entry = AuditEntry(
                time=time,
                cause="",
                actor=actor,
                kind=kind,
                outcome=outcome,
                reason=reason,
                resource=msgspec.json.decode(resource),
                after=None if told is None else msgspec.json.decode(told),
            )
            yield AuditRecord(number, zxid, entry)
        after = page[-1][0]
