"""Run the migrations on the connection that `database.migrate` provides."""

from __future__ import annotations

from alembic import context

from leadline_controller.adapters.history.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
