"""Create the tables of failed brokers and tasks, which are derived from audit entries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "failed_broker",
        sa.Column("broker", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("failed_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("incarnation", sa.Integer, nullable=False),
        sa.Column("detected_by", sa.String(255), nullable=False),
        sa.Column("controller_epoch", sa.Integer, nullable=False),
        sa.Column("returned_at", sa.BigInteger),
        sa.Column("queued_at", sa.BigInteger),
        sa.Column("chunks", sa.Integer, nullable=False),
        sa.Column("chunks_over", sa.Integer, nullable=False),
        sa.Column("chunks_cancelled", sa.Integer, nullable=False),
        sa.Column("partitions", sa.Integer, nullable=False),
        sa.Column("partitions_moved", sa.Integer, nullable=False),
        sa.Column("bytes_moved", sa.BigInteger, nullable=False),
        sa.Column("over_at", sa.BigInteger),
    )
    op.create_table(
        "task",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("cause", sa.String(255), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
    )
    op.create_index("task_created", "task", ["created_at"])


def downgrade() -> None:
    """Drop the tables."""
    for table in ("task", "failed_broker"):
        op.drop_table(table)
