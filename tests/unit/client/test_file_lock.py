"""One process at a time holds a file lock, and the kernel takes it back when the process ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from leadline_client.file_lock import FileLock, FileLockHeld

TRY = """
import pathlib, sys
from leadline_client.file_lock import FileLock, FileLockHeld
try:
    FileLock.acquire(pathlib.Path(sys.argv[1]), blocking=False, write_pid=True)
except FileLockHeld as held:
    print("held by", held.owner)
else:
    print("acquired")
"""

BECOME_ANOTHER_PROGRAM = """
import os, pathlib, sys
from leadline_client.file_lock import FileLock
FileLock.acquire(pathlib.Path(sys.argv[1]), blocking=False, inheritable=sys.argv[2] == "True")
os.execv(sys.executable, [sys.executable, "-c", "print('ready', flush=True); input()"])
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lock is."""
    return tmp_path / ".lock"


def outcome_of_another_process(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_another_process_is_refused_until_the_lock_is_released(path: Path) -> None:
    with FileLock.acquire(path, write_pid=True):
        assert path.read_text() == f"{os.getpid()}\n"
        assert outcome_of_another_process(path) == f"held by {os.getpid()}"
    assert outcome_of_another_process(path) == "acquired"


def test_the_owner_is_unknown_where_the_file_does_not_name_it(path: Path) -> None:
    lock = FileLock.acquire(path, blocking=False)
    assert path.read_bytes() == b""
    with pytest.raises(FileLockHeld) as refusal:
        FileLock.acquire(path, blocking=False)
    assert refusal.value.owner is None
    assert str(refusal.value) == f"another process holds the lock {path}"
    lock.release()
    lock.release()


def test_a_shorter_process_id_replaces_the_last_owners(path: Path) -> None:
    path.write_text("123456789012\n")
    with FileLock.acquire(path, blocking=False, write_pid=True):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_blocking_acquire_waits_for_the_release(path: Path) -> None:
    first = FileLock.acquire(path)
    acquired = threading.Event()

    def wait() -> None:
        with FileLock.acquire(path):
            acquired.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not acquired.wait(0.1)
    first.release()
    assert acquired.wait(10)
    waiting.join()


@pytest.mark.parametrize("inheritable", [True, False])
def test_only_an_inheritable_lock_outlives_exec(path: Path, inheritable: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BECOME_ANOTHER_PROGRAM, str(path), str(inheritable)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        expected = "held by None" if inheritable else "acquired"
        assert outcome_of_another_process(path) == expected
        child.kill()
    assert outcome_of_another_process(path) == "acquired"


def test_a_directory_that_does_not_exist_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock.acquire(tmp_path / "missing" / ".lock")
