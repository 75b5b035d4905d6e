"""The storage of an archive: a local directory, or a URI that `pyarrow.fs` knows.

A file is written under a temporary name and renamed when it is complete, so that a listing shows
all of it or nothing. In a local directory, the file and then the rename are synced to disk. Other
file systems have guarantees of their own.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from leadline_client.file_lock import FileLock
from leadline_spark.archive.naming import MANIFESTS, is_temporary, temporary_path, topic_folder

ABANDONED_S = 3_600.0
LOCK = "_lock"


class Pending(Protocol):
    """A file that is being written, and that no listing shows yet."""

    file: BinaryIO

    def finish(self, path: str) -> None:
        """Make it visible under this path, and replace a file that is there."""

    def discard(self) -> None:
        """Delete it, unless it is finished."""


class ArchiveStore(Protocol):
    """A directory; paths are relative to it, with slashes."""

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of all files below a folder, sorted; an empty list without a folder.

        Raises OSError if it cannot be read.
        """

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None if it does not exist."""

    def idle_s(self, path: str) -> float | None:
        """Return the seconds since the last write to a file, or None if it does not exist."""

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises FileNotFoundError."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    def begin(self, folder: str) -> Pending:
        """Begin a file that will be in a folder."""

    def lock(self) -> AbstractContextManager[object]:
        """Hold the archive's lock during a block, such as a commit."""


class LocalStore:
    """A local directory, on a disk or a network mount."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of all files below a folder, sorted.

        Raises OSError if a folder cannot be read: an archive that looks empty would begin again.
        """
        top = self._root / folder
        return sorted(
            str((Path(where) / name).relative_to(self._root))
            for where, _, names in os.walk(top, onerror=_unless_gone)
            for name in names
        )

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None."""
        try:
            return (self._root / path).stat().st_size
        except FileNotFoundError:
            return None

    def idle_s(self, path: str) -> float | None:
        """Return the seconds since the last write to a file, or None."""
        try:
            return time.time() - (self._root / path).stat().st_mtime
        except FileNotFoundError:
            return None

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        return (self._root / path).open("rb")

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        (self._root / path).unlink(missing_ok=True)

    def begin(self, folder: str) -> Pending:
        """Begin a file."""
        (self._root / folder).mkdir(parents=True, exist_ok=True)
        return _LocalPending(self._root, temporary_path(folder, uuid.uuid4().hex))

    def lock(self) -> AbstractContextManager[object]:
        """Hold a file lock, which the kernel releases if this process dies."""
        self._root.mkdir(parents=True, exist_ok=True)
        return FileLock.acquire(self._root / LOCK)


class _LocalPending:
    """A file that is synced, renamed, and whose directories are synced."""

    def __init__(self, root: Path, temporary: str) -> None:
        self._root = root
        self._temporary = root / temporary
        self.file: BinaryIO = self._temporary.open("xb")

    def finish(self, path: str) -> None:
        target = self._root / path
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self._temporary.replace(target)
        for folder in (target.parent, *target.parent.parents):
            _sync_folder(folder)
            if folder == self._root:
                return

    def discard(self) -> None:
        with suppress(OSError):  # A full disk does not take what is buffered.
            self.file.close()
        self._temporary.unlink(missing_ok=True)


def _unless_gone(problem: OSError) -> None:
    if not isinstance(problem, FileNotFoundError):
        raise problem


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RemoteStore:
    """A directory of any file system of `pyarrow.fs`: `s3://…`, `gs://…`, `hdfs://…`.

    Object stores have no rename. There, `move` copies, and the copy becomes visible as a whole.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of all files below a folder, sorted."""
        from pyarrow import fs  # noqa: PLC0415 - local archives need no pyarrow

        top = self._absolute(folder) if folder else self._root
        selector = fs.FileSelector(top, allow_not_found=True, recursive=True)
        found = self._fs.get_file_info(selector)
        skip = len(self._root) + 1 if self._root else 0
        return sorted(one.path[skip:] for one in found if one.is_file)

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None."""
        found = self._fs.get_file_info(self._absolute(path))
        return int(found.size) if found.is_file else None

    def idle_s(self, path: str) -> float | None:
        """Return the seconds since the last write to a file, or None."""
        found = self._fs.get_file_info(self._absolute(path))
        return time.time() - found.mtime_ns / 1e9 if found.is_file and found.mtime_ns else None

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        opened: BinaryIO = self._fs.open_input_file(self._absolute(path))
        return opened

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError):
            self._fs.delete_file(self._absolute(path))

    def begin(self, folder: str) -> Pending:
        """Begin a file."""
        self._fs.create_dir(self._absolute(folder), recursive=True)
        temporary = self._absolute(temporary_path(folder, uuid.uuid4().hex))
        return _RemotePending(self._fs, temporary, self._absolute)

    def lock(self) -> AbstractContextManager[object]:
        """Do nothing: object stores have no locks."""
        return nullcontext()

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if self._root else path


class _RemotePending:
    """A file that is closed and moved."""

    def __init__(self, filesystem: Any, temporary: str, absolute: Callable[[str], str]) -> None:
        self._fs = filesystem
        self._temporary = temporary
        self._absolute = absolute
        self._over = False
        self.file: BinaryIO = filesystem.open_output_stream(temporary)

    def finish(self, path: str) -> None:
        self.file.close()
        self._fs.move(self._temporary, self._absolute(path))
        self._over = True

    def discard(self) -> None:
        if not self._over:
            for step in (self.file.close, partial(self._fs.delete_file, self._temporary)):
                with suppress(OSError):
                    step()
            self._over = True


def absolute(location: str) -> str:
    """Return a location that does not depend on the working directory."""
    return location if "://" in location else str(Path(location).absolute())


def open_store(location: str) -> ArchiveStore:
    """Return the store at a path or URI. Raises ValueError for a URI that pyarrow does not know."""
    if "://" not in location:
        return LocalStore(Path(absolute(location)))
    from pyarrow import fs, lib  # noqa: PLC0415 - local archives need no pyarrow

    try:
        filesystem, root = fs.FileSystem.from_uri(location)
    except lib.ArrowInvalid as failure:
        raise ValueError(f"{location}: {failure}") from failure
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalStore(Path(root))
    return RemoteStore(filesystem, root)


def write(store: ArchiveStore, path: str, content: bytes) -> None:
    """Write a small file."""
    pending = store.begin(path.rpartition("/")[0])
    try:
        pending.file.write(content)
        pending.finish(path)
    finally:
        pending.discard()


def read(store: ArchiveStore, path: str) -> bytes:
    """Return the content of a small file. Raises FileNotFoundError."""
    with store.open(path) as file:
        return file.read()


def sweep(store: ArchiveStore, older_than_s: float = ABANDONED_S) -> int:
    """Delete incomplete files of dead writers, and return their number.

    A writer counts as dead after `older_than_s` without a write. Compactions, and tasks that
    outlived their driver, may be writing at the same time. The time is that of the file system,
    as the clock of this machine may be far ahead of it.
    """
    folders = (f"{MANIFESTS}/", topic_folder(""))
    incomplete = [path for path in store.paths() if path.startswith(folders) and is_temporary(path)]
    if not incomplete:
        return 0
    ahead_s = _clock_ahead_s(store)
    abandoned = [
        path
        for path in incomplete
        if (idle_s := store.idle_s(path)) is not None and idle_s - ahead_s >= older_than_s
    ]
    for path in abandoned:
        store.delete(path)
    return len(abandoned)


def _clock_ahead_s(store: ArchiveStore) -> float:
    """Return how far this machine's clock is ahead of the time that the store gives to files."""
    fresh = temporary_path(MANIFESTS, uuid.uuid4().hex)
    try:
        write(store, fresh, b"")
        return store.idle_s(fresh) or 0.0
    finally:
        store.delete(fresh)
