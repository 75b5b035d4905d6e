"""Create the tables of audit entries, partition changes and the snapshot."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("zxid", sa.BigInteger, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("cause", sa.String(255), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("topic", sa.String(255)),
        sa.Column("partition", sa.Integer),
        sa.Column("broker", sa.Integer),
        sa.Column("group_name", sa.String(255)),
        sa.Column("config", sa.String(255)),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
        sa.Column("zk", sa.Text, nullable=False),
        sa.Column("changes", sa.Integer, nullable=False),
    )
    op.create_index("audit_time", "audit", ["time"])
    op.create_index("audit_zxid", "audit", ["zxid"])
    op.create_index("audit_cause", "audit", ["cause"])
    op.create_index("audit_kind", "audit", ["kind", "id"])
    op.create_index("audit_topic", "audit", ["topic", "id"])
    op.create_index("audit_broker", "audit", ["broker", "id"])
    op.create_table(
        "state_change",
        sa.Column("audit_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("topic", sa.String(255), nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("state_version", sa.Integer, nullable=False),
    )
    op.create_index("state_change_partition", "state_change", ["topic", "partition", "audit_id"])
    op.create_table(
        "snapshot",
        sa.Column("audit_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("zxid", sa.BigInteger, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
    )
    op.create_table(
        "fact",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("fact", "snapshot", "state_change", "audit"):
        op.drop_table(table)
