"""Exclusive locks between processes, on files (`flock`); the standard library only."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

_MOST_DIGITS: Final = 32


class FileLockHeld(Exception):
    """Another process holds the lock; `owner` is its process id, where the file says so."""

    def __init__(self, path: Path, owner: int | None) -> None:
        holder = "another process" if owner is None else f"process {owner}"
        super().__init__(f"{holder} holds the lock {path}")
        self.path = path
        self.owner = owner


class FileLock:
    """A lock that this process holds until `release`, or until it ends, however it ends.

    Dropping the last reference does not release it. Processes see the same lock only through the
    same file, so the file is never deleted.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(
        cls,
        path: Path,
        *,
        blocking: bool = True,
        write_pid: bool = False,
        inheritable: bool = False,
    ) -> Self:
        """Lock the file at `path`, and create it first if it does not exist.

        `blocking`: wait while another process holds the lock. `write_pid`: write this process's
        id into the file. `inheritable`: keep the lock across `exec`.

        Raises:
            FileLockHeld: another process holds the lock, and `blocking` is false.
            OSError: the file cannot be opened, locked, or written.

        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _flock(descriptor, path, blocking=blocking)
            if write_pid:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            os.set_inheritable(descriptor, inheritable)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _flock(descriptor: int, path: Path, *, blocking: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
    except BlockingIOError:
        raise FileLockHeld(path, _owner(descriptor)) from None


def _owner(descriptor: int) -> int | None:
    with suppress(ValueError):
        return int(os.pread(descriptor, _MOST_DIGITS, 0))
    return None
