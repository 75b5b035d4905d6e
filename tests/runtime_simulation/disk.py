"""A broker's disk: real files in memory, and what of them a power cut would leave.

A file is durable up to its content at its last fsync, and an entry of a directory as it was at the
directory's last fsync. A power cut restores that; of what was not synced, a part may survive.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from stat import S_ISDIR


@dataclass(eq=False, slots=True)
class Disk:
    """The files below `root`.

    `entries` are the durable entries of each directory that was ever synced, each with the inode
    of a file or None for a directory; `contents` the durable content of each inode. A removed file
    keeps its inode, by a link beside the disk, as long as a durable entry may name it.
    """

    root: Path
    random: Random
    entries: dict[str, dict[str, int | None]] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    free_bytes: int | None = None
    failing: bool = False
    hangs: bool = False
    shortage: int = 0
    """Why it opens no files (EMFILE) or creates none (ENOSPC); 0 if it does."""
    unreadable: str = ""
    """Segments whose paths begin so cannot be read; none if it is empty."""
    unreadable_share: float = 1.0
    """How many of the reads of these fail."""
    refused_reads: int = 0
    on_wait: Callable[[], None] = lambda: None
    """Called when the only thread of a process waits for a disk that hangs."""
    _removed: dict[str, list[int]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    def covers(self, path: str) -> bool:
        """Tell whether a path lies on this disk."""
        return path == str(self.root) or path.startswith(f"{self.root}/")

    def refuse(self, *, creates: bool) -> None:
        """Refuse to open a file, or to create one, if that is what is short.

        Raises:
            OSError: there is no descriptor, or no space.

        """
        if self.shortage == errno.EMFILE or (creates and self.shortage == errno.ENOSPC):
            raise OSError(self.shortage, os.strerror(self.shortage))

    def is_unreadable(self, path: str) -> bool:
        """Tell whether a read of a segment fails."""
        share = self.unreadable_share
        may_fail = bool(self.unreadable) and path.startswith(self.unreadable)
        fails = may_fail and (share == 1.0 or self.random.random() < share)
        self.refused_reads += fails
        return fails

    def synced(self, path: str, size: int | None = None) -> None:
        """Note that a file's first `size` bytes, or all, or a directory's entries, are durable."""
        file = Path(path)
        found = file.stat()
        if S_ISDIR(found.st_mode):
            self.entries[path] = {
                entry.name: None if entry.is_dir() else entry.inode() for entry in os.scandir(path)
            }
            for inode in self._removed.pop(path, ()):
                self.contents.pop(inode, None)
                self._link(inode).unlink()
        else:
            self.contents[found.st_ino] = file.read_bytes()[:size]

    def removing(self, path: str) -> None:
        """Note that a file is about to be removed, or replaced by another."""
        inode = Path(path).stat().st_ino if Path(path).is_file() else None
        if inode in self.contents and not (link := self._link(inode)).exists():
            link.parent.mkdir(exist_ok=True)
            link.hardlink_to(path)
            self._removed.setdefault(str(Path(path).parent), []).append(inode)

    def _link(self, inode: int) -> Path:
        return self.root.with_name(f"{self.root.name} removed") / str(inode)

    def moved(self, source: str, target: str) -> None:
        """Note that a directory was renamed: what is durable below it moves along."""
        for path in [p for p in self.entries if p == source or p.startswith(f"{source}/")]:
            self.entries[target + path[len(source) :]] = self.entries.pop(path)

    def cut_power(self) -> None:
        """Leave what is durable, and by chance a part of what is not."""
        current = {
            path.stat().st_ino: path.read_bytes() for path in self.root.rglob("*") if path.is_file()
        }
        surviving = dict(self._surviving(str(self.root), current))
        directories = [path for path in self.entries if path in surviving or path == str(self.root)]
        self.wipe()
        for path, content in surviving.items():
            if content is not None:
                Path(path).write_bytes(content)
                self.synced(path)
            else:
                Path(path).mkdir()
        for path in directories:
            self.synced(path)
            os.utime(path)  # on the clock that is in force: the age of a stray begins again

    def copied(self) -> Path:
        """Copy all files beside the disk, as a backup would; return where they are."""
        copy = self.root.with_name(f"{self.root.name} copy")
        _copy(self.root, copy)
        return copy

    def replace_by(self, copy: Path) -> None:
        """Become a copy, which is durable."""
        self.wipe()
        _copy(copy, self.root)
        shutil.rmtree(copy)
        for path in (self.root, *self.root.rglob("*")):
            self.synced(str(path))

    def wipe(self) -> None:
        """Lose everything."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        self.entries.clear()
        self.contents.clear()
        for inode in [one for inodes in self._removed.values() for one in inodes]:
            self._link(inode).unlink()
        self._removed.clear()

    def _surviving(
        self, path: str, current: dict[int, bytes]
    ) -> Iterator[tuple[str, bytes | None]]:
        """Yield what is left below a directory: files with their content, directories without."""
        for name, inode in self.entries.get(path, {}).items():
            below = f"{path}/{name}"
            if inode is None:
                yield below, None
                yield from self._surviving(below, current)
            else:
                yield below, self._content(self.contents.get(inode, b""), current.get(inode, b""))

    def _content(self, durable: bytes, current: bytes) -> bytes:
        """Return the durable content, sometimes with the beginning of what was appended since."""
        if current.startswith(durable) and self.random.random() < 0.5:
            return current[: self.random.randint(len(durable), len(current))]
        return durable


def _copy(source: Path, target: Path) -> None:
    """Copy the files of a directory and of all below it.

    `shutil.copytree` would set their times, too, which the simulated system does not allow.
    """
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.is_dir():
            _copy(path, target / path.name)
        else:
            (target / path.name).write_bytes(path.read_bytes())
