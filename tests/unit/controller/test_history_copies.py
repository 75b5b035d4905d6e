"""Copies of SQLite histories that are being written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leadline_common.znodes import AuditEntry
from leadline_controller.adapters.history.copies import (
    UnreadableHistory,
    copy_history,
    newest_entry,
)
from leadline_controller.adapters.history.database import open_database
from leadline_controller.adapters.history.store import HistoryStore
from leadline_controller.domain.history import AuditRecord


def test_a_copy_has_what_is_only_in_the_write_ahead_log(tmp_path: Path) -> None:
    source, copy = tmp_path / "history.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(source)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("CREATE TABLE audit (id)")
        writer.execute("INSERT INTO audit VALUES (7)")
        writer.commit()
        copy_history(source, copy)
    (tmp_path / "alone").mkdir()
    alone = copy.rename(tmp_path / "alone" / "copy.db")
    with closing(sqlite3.connect(alone)) as reader:
        assert reader.execute("SELECT id FROM audit").fetchall() == [(7,)]


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database, and long enough to have a header" * 100)
    for name in ("missing.db", "text.db"):
        with pytest.raises(UnreadableHistory, match=name):
            copy_history(tmp_path / name, tmp_path / "copy.db")
    assert not (tmp_path / "missing.db").exists()


def test_a_full_disk_names_the_copy_and_not_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = tmp_path / "history.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(source)) as writer:
        writer.execute("CREATE TABLE audit (id)")
        writer.execute("INSERT INTO audit VALUES (zeroblob(100000))")
        writer.commit()
    connect = sqlite3.connect

    def connect_to_a_small_disk(path: Path | str, *, uri: bool = False) -> sqlite3.Connection:
        connection = connect(path, uri=uri)
        if path == copy:
            connection.execute("PRAGMA max_page_count=3")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_to_a_small_disk)
    with pytest.raises(OSError, match="No space left") as failed:
        copy_history(source, copy)
    assert failed.value.filename == str(copy)


def test_the_newest_entry_counts_even_if_it_was_deleted_since(tmp_path: Path) -> None:
    history = tmp_path / "history.db"
    store = HistoryStore(open_database(f"sqlite:///{history}"))
    assert newest_entry(history) == -1
    store.append([AuditRecord(n, n + 1, AuditEntry(n, "", "", "kind")) for n in (0, 1, 2)])
    assert newest_entry(history) == 2
    store.forget_before(10)
    assert newest_entry(history) == 2
    with pytest.raises(UnreadableHistory, match="missing"):
        newest_entry(tmp_path / "missing.db")


def test_a_database_that_a_controller_has_not_filled_yet_has_no_entry(tmp_path: Path) -> None:
    """A backup that had one could not be restored."""
    for name in ("touched.db", "begun.db"):
        (tmp_path / name).touch()
    with closing(sqlite3.connect(tmp_path / "begun.db")) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
    assert [newest_entry(tmp_path / name) for name in ("touched.db", "begun.db")] == [-1, -1]
