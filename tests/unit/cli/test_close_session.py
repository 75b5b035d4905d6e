"""The exit code of `leadline close-session` says whether a session may be left."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from leadline_cli.main import app


@pytest.mark.parametrize("content", [None, b""])
def test_without_a_session_there_is_nothing_to_close(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "session"
    if content is not None:
        file.write_bytes(content)
    ended = CliRunner().invoke(app, ["close-session", str(file)])
    assert (ended.exit_code, ended.stderr) == (0, "there is nothing to close\n")


def test_a_damaged_file_is_an_error_and_stays(tmp_path: Path) -> None:
    """Its session may live on: whoever relies on the exit code has to know."""
    file = tmp_path / "session"
    file.write_bytes(b"{")
    ended = CliRunner().invoke(app, ["close-session", str(file)])
    assert ended.exit_code == 1
    assert f"closed no session: {file} is damaged" in ended.stderr
    assert file.read_bytes() == b"{"
