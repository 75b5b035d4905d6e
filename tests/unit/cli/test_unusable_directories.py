"""Data directories that cannot be looked at are named in an error, and nothing is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {"brokers": 2, "doctor": 2, "produce t": 2, "up": 1}


def run(words: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a working directory that is deleted before it starts."""
    directory.mkdir()
    shell = 'rmdir "$PWD" && exec "$@"'
    command = [sys.executable, "-m", "leadline_cli", *words.split(), *options]
    return subprocess.run(
        ["sh", "-c", shell, "sh", *command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(("words", "code"), COMMANDS.items())
def test_a_directory_with_too_long_a_name_is_refused(tmp_path: Path, words: str, code: int) -> None:
    ended = run(words, tmp_path / "gone", f"--data-dir={tmp_path / ('x' * 256)}")
    assert ended.returncode == code, ended.stderr
    assert "(File name too long)" in ended.stderr.replace("\n", " ")
    assert "Traceback" not in ended.stderr
    assert not [*tmp_path.iterdir()], "nothing was made"


@pytest.mark.parametrize("words", ["doctor", "up"])
def test_a_working_directory_that_was_deleted_is_no_crash(tmp_path: Path, words: str) -> None:
    ended = run(words, tmp_path / "gone")
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ("cannot use data (No such file or directory)" in ended.stderr) == (words == "up")
