"""The tables of the history, for any database that SQLAlchemy supports.

`audit` has a row for each entry, whose id is the entry's number in the outbox.
`state_change` has a row for each partition that an entry changed. `snapshot` holds the
cluster before the oldest stored entry, and `fact` values of the whole database.
`failed_broker` and `task` are derived from the entries (`projections.py`) and outlive
them. Nested values are JSON text, so that every database stores the same.

Migrations are in `migrations/`; a test compares their result with these tables.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("zxid", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("cause", String(255), nullable=False),
    Column("actor", String(255), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("reason", Text, nullable=False),
    Column("topic", String(255)),
    Column("partition", Integer),
    Column("broker", Integer),
    Column("group_name", String(255)),
    Column("config", String(255)),
    Column("resource", Text, nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("zk", Text, nullable=False),
    Column("changes", Integer, nullable=False),
    Index("audit_time", "time"),
    Index("audit_zxid", "zxid"),
    Index("audit_cause", "cause"),
    Index("audit_kind", "kind", "id"),
    Index("audit_topic", "topic", "id"),
    Index("audit_broker", "broker", "id"),
)

state_change = Table(
    "state_change",
    metadata,
    Column("audit_id", BigInteger, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("topic", String(255), nullable=False),
    Column("partition", Integer, nullable=False),
    Column("reason", String(64), nullable=False),
    Column("before", Text),
    Column("after", Text, nullable=False),
    Column("state_version", Integer, nullable=False),
    Index("state_change_partition", "topic", "partition", "audit_id"),
)

snapshot = Table(
    "snapshot",
    metadata,
    Column("audit_id", BigInteger, primary_key=True, autoincrement=False),
    Column("zxid", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("cluster", Text, nullable=False),
)

failed_broker = Table(
    "failed_broker",
    metadata,
    Column("broker", Integer, primary_key=True, autoincrement=False),
    Column("failed_at", BigInteger, primary_key=True, autoincrement=False),
    Column("incarnation", Integer, nullable=False),
    Column("detected_by", String(255), nullable=False),
    Column("controller_epoch", Integer, nullable=False),
    Column("returned_at", BigInteger),
    Column("queued_at", BigInteger),
    Column("chunks", Integer, nullable=False),
    Column("chunks_over", Integer, nullable=False),
    Column("chunks_cancelled", Integer, nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("partitions_moved", Integer, nullable=False),
    Column("bytes_moved", BigInteger, nullable=False),
    Column("over_at", BigInteger),
)

task = Table(
    "task",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(64), nullable=False),
    Column("actor", String(255), nullable=False),
    Column("cause", String(255), nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", String(32), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger, nullable=False),
    Column("total", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("details", Text, nullable=False),
    Index("task_created", "created_at"),
)

fact = Table(
    "fact",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)
