"""Opening the history's database: migrated, checked, and set aside where it is damaged.

SQLite runs in WAL mode, so that readers never wait for the writer. A damaged file
loses nothing that the outbox in ZooKeeper or another controller still has: it is
kept under another name for whoever wants to look, and a new one is begun.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import StaticPool

_log = logging.getLogger(__name__)

IN_MEMORY = "sqlite://"
_MIGRATIONS = Path(__file__).parent / "migrations"
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000", "foreign_keys=ON")
_NO_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""What keeps SQLite from using a file that may be whole."""
_COMPANIONS = ("", "-wal", "-shm")
_migrating = threading.Lock()
"""Alembic works on globals: a second migration would go on in the first one's database."""


def open_database(url: str) -> Engine:
    """Return an engine on a checked database of the present version.

    Raises:
        DatabaseError: the server cannot be reached, or its tables are somebody else's; the
            file cannot be used at the moment, as another process has it or the disk is full.

    """
    path = file_of(url)
    if path is None:
        return _opened(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _opened(url)
    except (DatabaseError, DamagedDatabase) as problem:
        if not _is_damage(problem):
            raise
        set_aside(path, "damaged", str(problem))
        return _opened(url)


class DamagedDatabase(Exception):
    """SQLite's own check has found a fault in the file."""


def _is_damage(problem: DatabaseError | DamagedDatabase) -> bool:
    """Tell whether a file that cannot be opened is to blame itself."""
    if isinstance(problem, DamagedDatabase):
        return True
    code = getattr(problem.orig, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return (code & 0xFF) not in _NO_DAMAGE


def file_of(url: str) -> Path | None:
    """Return the file of an SQLite URL, or None for any other database."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database))


def set_aside(path: Path, word: str, why: str) -> None:
    """Give a database file another name, with its companions."""
    aside = f"{path.name}.{word}-{time.time_ns() // 1_000_000}"
    _log.error("%s is set aside as %s, and begun anew: %s", path, aside, why)
    for suffix in _COMPANIONS:
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(path.with_name(aside + suffix))


def _opened(url: str) -> Engine:
    engine = _engine(url)
    try:
        if engine.dialect.name == "sqlite":
            _check(engine)
        migrate(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _check(engine: Engine) -> None:
    """Have SQLite examine its file.

    Raises:
        DamagedDatabase: it found a fault.

    """
    with engine.connect() as connection:
        found = connection.execute(text("PRAGMA integrity_check")).scalars().all()
    if found != ["ok"]:
        raise DamagedDatabase("; ".join(map(str, found[:5])))


def migrate(engine: Engine) -> None:
    """Bring the tables to the present version."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _migrating, engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _engine(url: str) -> Engine:
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    if file_of(url) is None:  # one connection, or every thread would have a database of its own
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(url)
    event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: Any, _record: Any) -> None:
    """Set up each new SQLite connection."""
    if isinstance(connection, sqlite3.Connection):
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
