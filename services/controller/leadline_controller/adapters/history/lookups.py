"""Single facts about the stored history, each read by one query."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, func, select

from leadline_controller.adapters.history.tables import audit, snapshot
from leadline_controller.domain.history import (
    CLUSTER_RESTORED,
    CONTROLLER_ELECTED,
    HISTORY_GAP,
    UNAUDITED_CHANGES,
    PastCluster,
)

_past = msgspec.json.Decoder(PastCluster)
NOTHING = -1
"""The id before the first record."""


def last_restore(connection: Connection) -> int:
    """Return the id of the entry from which on transactions are those of the present ZooKeeper.

    It is 0 if that is so from the first one on.
    """
    wanted = select(func.max(audit.c.id)).where(audit.c.kind == CLUSTER_RESTORED)
    return connection.scalar(wanted) or 0


def doubt_about(connection: Connection, audit_id: int) -> str:
    """Return why a past state after this entry is not certain; an empty string if it is.

    A later controller found changes of others, made at any time since an entry.
    """
    columns = select(audit.c.after, audit.c.reason)
    found = columns.where(audit.c.kind == UNAUDITED_CHANGES, audit.c.id > audit_id)
    row = connection.execute(found.order_by(audit.c.id).limit(1)).first()
    if row is None or msgspec.json.decode(row.after or "{}").get("since", -1) > audit_id:
        return ""
    return str(row.reason)


def last_id(connection: Connection) -> int:
    """Return the newest id, even if all entries have been deleted since; `NOTHING` without any."""
    newest = connection.scalar(select(func.max(audit.c.id)))
    if newest is None:
        newest = connection.scalar(select(func.max(snapshot.c.audit_id)))
    return NOTHING if newest is None else newest


def last_expired(connection: Connection, time_ms: int, now_ms: int) -> int | None:
    """Return the id of the newest entry that is older than `time_ms`, as all before it are.

    Clocks of writers differ. An entry with a time long past must not take younger ones before it
    with it, and one whose time is after `now_ms`, or is that of a gap's detection, keeps none.
    """
    # The sum keeps the database from collecting every younger entry by its time: it stops at the
    # first one in the order of ids.
    is_young = (audit.c.time + 0).between(time_ms, now_ms) & (audit.c.kind != HISTORY_GAP)
    young = select(audit.c.id).where(is_young).order_by(audit.c.id).limit(1)
    wanted = select(func.max(audit.c.id)).where(audit.c.time < time_ms)
    first = connection.scalar(young)
    found: int | None = connection.scalar(
        wanted if first is None else wanted.where(audit.c.id < first)
    )
    return found


def last_transaction(connection: Connection, audit_id: int) -> int:
    """Return the id of the last entry up to this one that a transaction wrote, or `NOTHING`."""
    wanted = select(func.max(audit.c.id)).where(audit.c.id <= audit_id, audit.c.kind != HISTORY_GAP)
    found = connection.scalar(wanted)
    return NOTHING if found is None else found


def kind_after(connection: Connection, audit_id: int) -> str | None:
    """Return the kind of the entry after another one, or None."""
    following = select(audit.c.kind).where(audit.c.id > audit_id).order_by(audit.c.id).limit(1)
    return connection.scalar(following)


def last_before_election(connection: Connection) -> int:
    """Return the id of the last entry before the latest election, or `NOTHING`.

    Entries of brokers do not count: brokers go on changing ISRs while no controller is active.
    """
    elected = select(func.max(audit.c.id)).where(audit.c.kind == CONTROLLER_ELECTED)
    wanted = select(audit.c.id).where(
        audit.c.id < elected.scalar_subquery(), ~audit.c.actor.startswith("broker")
    )
    found = connection.scalar(wanted.order_by(audit.c.id.desc()).limit(1))
    return NOTHING if found is None else found


def kept_snapshot(connection: Connection) -> PastCluster:
    """Return the state of the cluster before the oldest entry that is kept."""
    text = connection.scalar(select(snapshot.c.cluster))
    return PastCluster() if text is None else _past.decode(text)
