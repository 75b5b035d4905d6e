"""Opening the history database: integrity check, migration, and replacement of a damaged file.

SQLite runs in WAL mode, so that readers never wait for the writer. A damaged file is
renamed and kept for inspection, and a new database replaces it: its entries are read
again from the outbox in ZooKeeper or from another controller.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import StaticPool

from leadline_client.errors import HistoryUnavailable

logger = structlog.get_logger(__name__)

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
"""Error codes of SQLite that do not mean a damaged file."""
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_COMPANIONS = ("", "-wal", "-shm")
_migrating = threading.Lock()
"""Alembic uses globals, so that concurrent migrations would share one connection."""


def open_database(url: str) -> Engine:
    """Return an engine on a checked and migrated database.

    Raises:
        DatabaseError: the server cannot be reached, its tables belong to another
            application, or the file is unusable now (locked, or the disk is full).
        HistoryUnavailable: a later release has made its tables.

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
    """SQLite's integrity check found damage in the file."""


def _is_damage(problem: DatabaseError | DamagedDatabase) -> bool:
    """Tell whether a file cannot be opened because it is damaged."""
    if isinstance(problem, DamagedDatabase):
        return True
    code = getattr(problem.orig, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return (code & 0xFF) not in _NO_DAMAGE


def shows_damage(problem: DatabaseError) -> bool:
    """Tell whether an error of an open database says that its file is damaged."""
    code = getattr(problem.orig, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return (code & 0xFF) in _DAMAGE


def unavailable(url: str, problem: DatabaseError | OSError) -> HistoryUnavailable | None:
    """Return what to raise if a database cannot be used for now; None for any other error.

    Its disk is full, read-only or broken, another process has locked it, or its server is away.
    """
    if isinstance(problem, OSError):
        reason = problem.strerror or str(problem)
    elif isinstance(problem, OperationalError) and _is_no_fault_of_ours(problem):
        reason = str(problem.orig).partition("\n")[0]
    else:
        return None
    return HistoryUnavailable(f"the history in {shown(url)} cannot be used: {reason}")


def _is_no_fault_of_ours(problem: OperationalError) -> bool:
    """Tell apart from an SQL statement that SQLite does not understand, which is a defect."""
    code = getattr(problem.orig, "sqlite_errorcode", None)
    return code is None or (code & 0xFF) in _NO_DAMAGE


def identity_of(url: str) -> tuple[int, int] | None:
    """Return what tells a database's file from one that takes its place; None if there is none."""
    path = file_of(url)
    try:
        found = path.stat() if path is not None else None
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None


def url_of(path: Path) -> str:
    """Return the URL of an SQLite file."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def shown(url: str | URL) -> str:
    """Return a URL for messages: without its password."""
    return make_url(url).render_as_string(hide_password=True)


def file_of(url: str) -> Path | None:
    """Return the file of an SQLite URL, or None for any other database."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database))


def is_in_memory(url: str) -> bool:
    """Tell whether a URL is that of an SQLite database without a file."""
    return make_url(url).get_backend_name() == "sqlite" and file_of(url) is None


def set_aside(path: Path, label: str, reason: str) -> None:
    """Rename a database file and its WAL files, with `label` and the time in the new name."""
    new_name = f"{path.name}.{label}-{time.time_ns() // 1_000_000}"
    logger.error("history database is set aside", path=str(path), name=new_name, reason=reason)
    for suffix in _COMPANIONS:
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(path.with_name(new_name + suffix))


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
    """Run SQLite's integrity check.

    Raises:
        DamagedDatabase: the check found damage.

    """
    with engine.connect() as connection:
        found = connection.execute(text("PRAGMA integrity_check")).scalars().all()
    if found != ["ok"]:
        raise DamagedDatabase("; ".join(map(str, found[:5])))


def migrate(engine: Engine) -> None:
    """Migrate the tables to the current version.

    Raises:
        HistoryUnavailable: a later release has made them, and nothing was changed.

    """
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _migrating, engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as problem:
            raise HistoryUnavailable(
                f"a later release has made the tables of {shown(engine.url)} ({problem}): start "
                "that release, or set another history.url"
            ) from problem


def _engine(url: str) -> Engine:
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    if file_of(url) is None:  # share one connection: each new one would be a new database
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(url)
    event.listen(engine, "connect", _set_pragmas)
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Yield a connection whose queries all see the database as of one moment.

    Otherwise the writer could delete entries between two queries of one answer.
    """
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")  # Python's driver begins with a write only
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def _set_pragmas(connection: Any, _record: Any) -> None:
    """Configure each new SQLite connection."""
    if isinstance(connection, sqlite3.Connection):
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
