"""Where an archive lies: a directory here, or one that `pyarrow.fs` knows by its URI.

A file is written under a temporary name and renamed when it is whole, so that whoever lists the
directory sees all of it or nothing. In a local directory it is on the disk before it is renamed,
and the rename is on the disk before this returns; elsewhere that is the file system's promise.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from leadline_spark.archive.naming import MANIFESTS, is_temporary, temporary_path, topic_folder

ABANDONED_S = 3_600.0
LOCK = "_lock"


class Pending(Protocol):
    """A file that is being written, and that nobody else sees yet."""

    file: BinaryIO

    def finish(self, path: str) -> None:
        """Let it appear whole under this path, in place of what was there."""

    def discard(self) -> None:
        """Forget it; nothing happens where it is finished."""


class ArchiveStore(Protocol):
    """A directory; paths are relative to it, with slashes."""

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of all files below a folder, sorted; none where there is no folder."""

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None where there is no such file."""

    def idle_s(self, path: str) -> float | None:
        """Return for how many seconds nobody has written to a file, None where there is none."""

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises FileNotFoundError."""

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""

    def begin(self, folder: str) -> Pending:
        """Begin a file that is to appear in a folder."""

    def lock(self) -> AbstractContextManager[None]:
        """Have others wait until the block is left, for as short as a commit takes."""


class LocalStore:
    """A directory of a file system that this process sees: a disk, or a network mount."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of all files below a folder, sorted."""
        top = self._root / folder
        return sorted(
            str((Path(where) / name).relative_to(self._root))
            for where, _, names in os.walk(top)
            for name in names
        )

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None."""
        try:
            return (self._root / path).stat().st_size
        except FileNotFoundError:
            return None

    def idle_s(self, path: str) -> float | None:
        """Return for how many seconds nobody has written to a file, or None."""
        try:
            return time.time() - (self._root / path).stat().st_mtime
        except FileNotFoundError:
            return None

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        return (self._root / path).open("rb")

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        (self._root / path).unlink(missing_ok=True)

    def begin(self, folder: str) -> Pending:
        """Begin a file."""
        (self._root / folder).mkdir(parents=True, exist_ok=True)
        return _LocalPending(self._root, temporary_path(folder, uuid.uuid4().hex))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold a lock that the kernel takes back from whoever dies."""
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / LOCK).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class _LocalPending:
    """Temporary name, fsync, rename, fsync of the directories."""

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
        self.file.close()
        self._temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RemoteStore:
    """A directory of any file system of `pyarrow.fs`: `s3://…`, `gs://…`, `hdfs://…`.

    Where there is no rename (object stores), `move` copies, and the copy appears whole.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of all files below a folder, sorted."""
        from pyarrow import fs  # noqa: PLC0415 - local archives do without pyarrow

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
        """Return for how many seconds nobody has written to a file, or None."""
        found = self._fs.get_file_info(self._absolute(path))
        return time.time() - found.mtime_ns / 1e9 if found.is_file and found.mtime_ns else None

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        opened: BinaryIO = self._fs.open_input_file(self._absolute(path))
        return opened

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        with suppress(FileNotFoundError):
            self._fs.delete_file(self._absolute(path))

    def begin(self, folder: str) -> Pending:
        """Begin a file."""
        self._fs.create_dir(self._absolute(folder), recursive=True)
        temporary = self._absolute(temporary_path(folder, uuid.uuid4().hex))
        return _RemotePending(self._fs, temporary, self._absolute)

    def lock(self) -> AbstractContextManager[None]:
        """Hold up nobody: object stores have no locks."""
        return nullcontext()

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if self._root else path


class _RemotePending:
    """Temporary name, close, move."""

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
            self.file.close()
            with suppress(OSError):
                self._fs.delete_file(self._temporary)
            self._over = True


def absolute(location: str) -> str:
    """Return a location that other processes, in other directories, find too."""
    return location if "://" in location else str(Path(location).absolute())


def open_store(location: str) -> ArchiveStore:
    """Return the store of a path or URI. Raises ValueError for a URI that pyarrow does not know."""
    if "://" not in location:
        return LocalStore(Path(absolute(location)))
    from pyarrow import fs, lib  # noqa: PLC0415 - local archives do without pyarrow

    try:
        filesystem, root = fs.FileSystem.from_uri(location)
    except lib.ArrowInvalid as failure:
        raise ValueError(f"{location}: {failure}") from failure
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalStore(Path(root))
    return RemoteStore(filesystem, root)


def write(store: ArchiveStore, path: str, content: bytes) -> None:
    """Write a small file at once."""
    pending = store.begin(path.rpartition("/")[0])
    try:
        pending.file.write(content)
        pending.finish(path)
    finally:
        pending.discard()


def read(store: ArchiveStore, path: str) -> bytes:
    """Read a small file whole. Raises FileNotFoundError."""
    with store.open(path) as file:
        return file.read()


def sweep(store: ArchiveStore, older_than_s: float = ABANDONED_S) -> int:
    """Delete what writers have left unfinished, and return how many files that were.

    Who has not written for so long is dead. A compaction, or a task that outlived its driver, may
    be at work meanwhile.
    """
    ours = (f"{MANIFESTS}/", topic_folder(""))
    unfinished = [one for one in store.paths() if one.startswith(ours) and is_temporary(one)]
    abandoned = [one for one in unfinished if (store.idle_s(one) or 0) >= older_than_s]
    for path in abandoned:
        store.delete(path)
    return len(abandoned)
