"""A restore puts histories back whole, below the data directory, and where there is none."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leadline_cli.backup.archive import UnusableBackup
from leadline_cli.backup.restoring import missing_histories, put_back

UNREADABLE = Path("/proc/self/mem")
"""A file of Linux that can be opened, and whose first byte cannot be read."""


def test_a_history_is_put_where_there_is_none(tmp_path: Path) -> None:
    copies = {f"/old/controller-{n}/history.db": tmp_path / f"{n}.db" for n in (1, 2)}
    for copy in copies.values():
        copy.write_bytes(b"rows")
    data = tmp_path / "data"
    put_back(copies["/old/controller-2/history.db"], data / "controller-2" / "history.db")
    found = missing_histories(copies, data)
    assert found == {data / "controller-1" / "history.db": tmp_path / "1.db"}
    for place, copy in found.items():
        put_back(copy, place)
        assert place.read_bytes() == b"rows"
    assert missing_histories(copies, data) == {}


def test_a_copy_that_is_interrupted_leaves_no_part_of_a_history(tmp_path: Path) -> None:
    """The restore that is run again would take the part for what the controller has."""
    place = tmp_path / "controller-1" / "history.db"
    with pytest.raises(OSError, match="Input/output error"):
        put_back(UNREADABLE, place)
    assert list(place.parent.iterdir()) == []


def test_a_history_is_put_back_without_the_write_ahead_log_of_the_lost_one(tmp_path: Path) -> None:
    lost, crashed, copy = (tmp_path / name for name in ("lost.db", "crashed.db", "copy.db"))
    with closing(sqlite3.connect(lost)) as writer:
        writer.executescript(
            "PRAGMA journal_mode=WAL; CREATE TABLE audit(id); CREATE TABLE more(id)"
        )
        shutil.copy(f"{lost}-wal", f"{crashed}-wal")  # As a kill of the writer leaves it.
    with closing(sqlite3.connect(copy)) as writer:
        writer.executescript("CREATE TABLE audit(id); INSERT INTO audit VALUES (7)")

    put_back(copy, crashed)

    with closing(sqlite3.connect(crashed)) as reader:
        assert reader.execute("SELECT id FROM audit").fetchall() == [(7,)]


@pytest.mark.parametrize("source", ["/../history.db", "/a/../../history.db", "/history.db", ""])
def test_a_history_of_no_directory_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(UnusableBackup, match="names no controller"):
        missing_histories({source: tmp_path / "0.db"}, tmp_path)
