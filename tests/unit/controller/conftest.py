"""Databases for the history: SQLite, and PostgreSQL if a server can be started."""

from __future__ import annotations

import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from leadline_controller.adapters.history.database import open_database


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """Yield the URL of a PostgreSQL server for a module.

    It does not run as root, so its directory must not lie in one that only root may enter.
    """
    pgserver = pytest.importorskip("pgserver", reason="there is no PostgreSQL for this platform")
    with tempfile.TemporaryDirectory() as directory:
        server = pgserver.get_server(directory, cleanup_mode=None)
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        os.kill(server.get_pid(), signal.SIGQUIT)  # at once: nothing of it is needed again


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'history.db'}"
    server: str = request.getfixturevalue("postgresql")
    name = f"history_{uuid.uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Yield an engine on a migrated database."""
    made = open_database(url)
    yield made
    made.dispose()
