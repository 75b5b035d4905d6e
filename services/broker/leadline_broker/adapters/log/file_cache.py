"""A bounded number of open files for an unbounded number of segments.

Thousands of partitions have more segments than a process may have files open. Files are
opened on use, and the least recently used are closed. A pinned file stays open: while it is
read, and from its first unsynced write to the end of the fsync, because closing the
descriptor would lose a write-back error. If pinned files took all descriptors, no fsync could open
the directory of its log, and none of them would ever be closed. So some are left.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from leadline_broker.adapters.log.kernel_fsyncs import Fsyncs

_CLOSED = -1
DEFAULT_CAPACITY = 1024


@dataclass(eq=False, slots=True)
class LogFile:
    """One file that a `FileCache` opens when needed.

    Attributes:
        path: its name, except as long as it has a provisional one.
        provisional: the name until `settle`; None if it has none.
        is_removed: it has left its log, and is about to be removed.

    """

    path: Path
    provisional: Path | None = None
    is_removed: bool = field(default=False, init=False)
    fd: int = field(default=_CLOSED, init=False)
    pins: int = field(default=0, init=False)

    @property
    def location(self) -> Path:
        """Its name at present."""
        return self.provisional or self.path

    def settle(self) -> bool:
        """Give a pinned file its final name; return whether it had a provisional one.

        Raises:
            OSError: it cannot be renamed, and keeps its provisional name.

        """
        if self.provisional is None:
            return False
        self.provisional.rename(self.path)
        self.provisional = None
        return True


class FileCache:
    """The open files of the process; closes the least recently used first. Thread-safe.

    `capacity` is the number of descriptors, at most a quarter of the `descriptors` that the process
    may have. Pinned files may exceed it, up to three eighths of them. `open_count` is the number of
    open descriptors. `fsyncs` fsyncs them without a thread, where that is possible.
    """

    def __init__(
        self,
        capacity: int = DEFAULT_CAPACITY,
        fsyncs: Fsyncs | None = None,
        descriptors: int = sys.maxsize,
    ) -> None:
        self._most_idle = descriptors // 4
        self._most_pinned = descriptors * 3 // 8
        self._capacity = min(capacity, self._most_idle)
        self.fsyncs = fsyncs
        self._lock = threading.Lock()
        self._idle: OrderedDict[LogFile, None] = OrderedDict()
        self.open_count = 0

    def resize(self, capacity: int) -> None:
        """Keep at most `capacity` descriptors open from now on."""
        with self._lock:
            self._capacity = min(capacity, self._most_idle)
            self._close_idle(self._capacity)

    def create(self, file: LogFile) -> None:
        """Create the file, empty.

        Raises:
            OSError: it exists already, or cannot be created.

        """
        self.pin(file, os.O_CREAT | os.O_EXCL)
        self.unpin(file)

    def pin(self, file: LogFile, flags: int = 0) -> int:
        """Return a descriptor that stays open until `unpin`.

        Raises:
            OSError: the file cannot be opened, or too many are pinned.

        """
        with self._lock:
            if file.fd == _CLOSED:
                self._require_room()
                file.fd = os.open(file.location, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
                self.open_count += 1
            elif not file.pins:
                del self._idle[file]
            file.pins += 1
            if self.open_count > self._capacity:
                self._close_idle(self._capacity)
            return file.fd

    def unpin(self, file: LogFile) -> None:
        """Release a pin; without pins the descriptor may be closed."""
        with self._lock:
            file.pins -= 1
            if not file.pins:
                self._idle[file] = None
                if self.open_count > self._capacity:
                    self._close_idle(self._capacity)

    def using(self, file: LogFile) -> PinnedFile:
        """Pin the file during a block, which gets its descriptor."""
        return PinnedFile(self, file)

    def close(self, file: LogFile) -> None:
        """Close the file, unless it is pinned."""
        with self._lock:
            if file in self._idle:
                del self._idle[file]
                self._close_one(file)

    def _require_room(self) -> None:
        if self.open_count - len(self._idle) >= self._most_pinned:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _close_idle(self, keep: int) -> None:
        while self.open_count > keep and self._idle:
            file, _ = self._idle.popitem(last=False)
            self._close_one(file)

    def _close_one(self, file: LogFile) -> None:
        fd, file.fd = file.fd, _CLOSED
        self.open_count -= 1
        os.close(fd)


class PinnedFile:
    """What `FileCache.using` returns."""

    __slots__ = ("_file", "_files")

    def __init__(self, files: FileCache, file: LogFile) -> None:
        self._files = files
        self._file = file

    def __enter__(self) -> int:
        return self._files.pin(self._file)

    def __exit__(self, *_: object) -> None:
        self._files.unpin(self._file)
