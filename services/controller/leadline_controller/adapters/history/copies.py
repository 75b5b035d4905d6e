"""Copies of a SQLite history while a controller writes to it."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path


class UnreadableHistory(ValueError):
    """The file is no SQLite database, or is damaged."""


def copy_history(source: Path, target: Path) -> None:
    """Copy a history as of one moment, with SQLite's online backup; `target` must not exist.

    A copy of the file itself could lack what is in its write-ahead log.

    Raises:
        UnreadableHistory: the file is missing, no database, or damaged.
        OSError: the disk of `target` is full.

    """
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as reader,
            closing(sqlite3.connect(target)) as writer,
        ):
            reader.backup(writer)
            # The copy is one file, that can be read without a write-ahead log beside it.
            writer.execute("PRAGMA journal_mode=DELETE")
            (verdict,) = writer.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as problem:
        if problem.sqlite_errorcode == sqlite3.SQLITE_FULL:  # The source is only read.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from None
        raise UnreadableHistory(f"{source}: {problem}") from None
    if verdict != "ok":
        raise UnreadableHistory(f"{source}: {verdict}")


def newest_entry(history: Path) -> int:
    """Return the id of the newest audit entry that was ever in a history; -1 if there is none.

    There is none in a database without any table either, which a controller is about to fill.

    Raises:
        UnreadableHistory: the file is missing, no database, damaged, or of another program.

    """
    try:
        with closing(sqlite3.connect(f"{history.absolute().as_uri()}?mode=ro", uri=True)) as reader:
            if reader.execute("SELECT name FROM sqlite_master").fetchone() is None:
                return -1
            (newest,) = reader.execute(
                "SELECT max(coalesce((SELECT max(id) FROM audit), -1),"
                " coalesce((SELECT max(audit_id) FROM snapshot), -1))"
            ).fetchone()
    except sqlite3.Error as problem:
        raise UnreadableHistory(f"{history}: {problem}") from None
    return int(newest)
