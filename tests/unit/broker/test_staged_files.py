"""Staged uploads on disk."""

from __future__ import annotations

from pathlib import Path

from leadline_broker.adapters.staged_files import StagedFiles


def test_what_is_no_upload_hinders_no_start(tmp_path: Path) -> None:
    """An operator may have copied a directory before touching it."""
    files, key = StagedFiles(tmp_path), ("topic-id", 3)
    files.write(key, "upload", b"records")
    (root,) = tmp_path.iterdir()
    copy = root / "topic-id-3-before"
    copy.mkdir()
    (copy / "upload").write_bytes(b"records")
    (root / "topic-id-4").write_bytes(b"a file")
    assert [row[:3] for row in files.found()] == [(key, "upload", 7)]
    assert copy.exists()
