"""The directory in which a backup is made, beside the file that it becomes, or is unpacked.

A process that is killed leaves its directory. The next one at the same place removes it: the
lock in it is the kernel's, and held for as long as the process lives.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from leadline_client.file_lock import FileLock, FileLockHeld

_PREFIX: Final = ".backup-"
_LOCK: Final = "lock"


@contextmanager
def workspace(parent: Path) -> Iterator[Path]:
    """Yield a new directory below `parent` that only its owner can read, and remove it at the end.

    Those of processes that have ended are removed first.

    Raises:
        OSError: it cannot be created.

    """
    remove_left(parent)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        # Nobody sees the lock before it is held.
        with FileLock.acquire(directory / f"{_LOCK}.new"):
            (directory / f"{_LOCK}.new").rename(directory / _LOCK)
            yield directory
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def remove_left(parent: Path) -> None:
    """Remove the directories of this user's processes that have ended, as far as possible."""
    for directory in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, FileLockHeld):
            if _is_own(directory) and (directory / _LOCK).exists():
                with FileLock.acquire(directory / _LOCK, blocking=False):
                    shutil.rmtree(directory)


def _is_own(directory: Path) -> bool:
    """Tell whether it is a directory of this user: others may put a link under its name."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
