"""System calls of the services while they are simulated: time, files, threads and random numbers.

The services ask the operating system for the time, and their logs for files. Here the modules `os`
and `time` answer for the simulated machine instead, for the length of a run.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from leadline_broker.adapters.log import checked_files, directory
from leadline_broker.adapters.log.layout import LOG_SUFFIX
from leadline_broker.runtime.replication import flusher, removals
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.event_loop import OWNER, SimulatedLoop
from tests.runtime_simulation.process import Process

_real: dict[str, Any] = {
    name: getattr(os, name)
    for name in (
        "open",
        "close",
        "fsync",
        "fdatasync",
        "pread",
        "pwrite",
        "rename",
        "replace",
        "unlink",
        "urandom",
        "utime",
    )
}


_replace_file = checked_files.replace_file
_T = TypeVar("_T")


class InTurn(Executor):
    """Runs the work of a pool of threads in the order of submission, which a seed determines."""

    def __init__(self, max_workers: int) -> None:
        del max_workers

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        done: Future[_T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@dataclass(eq=False)
class SimulatedSystem:
    """The clocks, files and random numbers of all simulated processes.

    `wall_offset_s` leads from virtual time to the right wall clock, and `ahead_s` from there to the
    wall clock of a process by its name, where that is wrong.
    Functions in `on_removal` see the path of each file of a disk that is about to be deleted, or to
    get another name.
    """

    loop: SimulatedLoop
    random: Random
    disks: list[Disk] = field(default_factory=list)
    wall_offset_s: float = 1_700_000_000.0
    ahead_s: dict[str, float] = field(default_factory=dict, init=False)
    on_removal: list[Callable[[Path], None]] = field(default_factory=list, init=False)
    most_ahead_s: float = field(default=0.0, init=False)
    """How far ahead the clocks of most services have been at any time, see `cluster_clocks.py`."""
    _furthest_s: dict[str, float] = field(default_factory=dict, init=False)
    _were_two_ahead: bool = field(default=False, init=False)
    _paths: dict[int, str] = field(default_factory=dict, init=False)

    # -- clocks ----------------------------------------------------------------

    def set_clock(self, process: str, ahead_s: float) -> None:
        """Set the wall clock of a process; also for the runs of its service that follow."""
        self.ahead_s[process] = ahead_s
        self._furthest_s[process] = max(ahead_s, self._furthest_s.get(process, 0.0))
        self._were_two_ahead |= sum(one > 0 for one in self.ahead_s.values()) > 1

    @property
    def clocks_were_set(self) -> bool:
        """Whether any wall clock was ever wrong."""
        return bool(self._furthest_s)

    def furthest_s(self, process: str) -> float:
        """Return how far ahead the wall clock of a process has been by now, at least 0."""
        return self._furthest_s.get(process, 0.0)

    def wall_s(self) -> float:
        """Return the time of the wall clock of the process that runs."""
        owner = OWNER.get()
        wrong_s = self.ahead_s.get(owner.name, 0.0) if owner is not None and self.ahead_s else 0.0
        return self.loop.now_s + self.wall_offset_s + wrong_s

    def latest_wall_s(self) -> float:
        """Return the latest time that the process that runs may take for that of the cluster.

        A clock alone that is ahead makes no difference. If two were at once, most may have been for
        a while, as services end; then it is what its own would be if it was never set back. But it
        is never later than by most clocks.
        """
        owner = OWNER.get()
        furthest_s = 0.0 if owner is None else self.furthest_s(owner.name)
        ahead_s = min(furthest_s, self.most_ahead_s) if self._were_two_ahead else 0.0
        return self.loop.now_s + self.wall_offset_s + ahead_s

    # -- files -----------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        self._refuse(path, creates=bool(flags & os.O_CREAT) and not Path(path).exists())
        descriptor: int = _real["open"](path, flags, mode, **options)
        self._paths[descriptor] = os.fspath(path)
        owner = OWNER.get()
        if owner is not None:
            owner.descriptors.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        owner = OWNER.get()
        if owner is not None:
            owner.descriptors.discard(descriptor)
        self._paths.pop(descriptor, None)
        _real["close"](descriptor)

    def fsync(self, descriptor: int, size: int | None = None) -> None:
        """Make a file durable, or its first `size` bytes."""
        path = self._paths.get(descriptor) or str(Path(f"/proc/self/fd/{descriptor}").readlink())
        disk = self._disk_of(path)
        if disk is None:
            return
        if disk.hangs:
            disk.on_wait()  # It ends all the same: the loop cannot stop within a call.
        if disk.failing:
            raise OSError(errno.EIO, "Input/output error")
        disk.synced(path, size)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """Read a part of a file; segments of some disks cannot be read."""
        if OWNER.get() is not None:
            path = self._paths.get(descriptor, "")
            disk = self._disk_of(path) if path.endswith(LOG_SUFFIX) else None
            if disk is not None and disk.is_unreadable(path):
                raise OSError(errno.EIO, "Input/output error")
        found: bytes = _real["pread"](descriptor, size, offset)
        return found

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        disk = self._disk_of(self._paths.get(descriptor, ""))
        if disk is not None and disk.free_bytes is not None:
            if disk.free_bytes < len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
            disk.free_bytes -= len(data)
        written: int = _real["pwrite"](descriptor, data, offset)
        return written

    def rename(self, source: Any, target: Any, **options: Any) -> None:
        path, before = os.fspath(target), os.fspath(source)
        self._tell_removal(before)
        self._note_removal(path)
        _real["rename"](source, target, **options)
        for descriptor in [one for one, name in self._paths.items() if name == before]:
            self._paths[descriptor] = path
        disk = self._disk_of(path)
        if disk is not None and Path(path).is_dir():
            disk.moved(before, path)

    def replace_file(self, path: Path, content: bytes, *, sync: bool = True) -> None:
        self._refuse(path, creates=True)
        _replace_file(path, content, sync=sync)

    def _refuse(self, path: Any, *, creates: bool) -> None:
        """Let a process feel that something is short, but not those that inject faults."""
        disk = None if OWNER.get() is None else self._disk_of(os.fspath(path))
        if disk is not None:
            disk.refuse(creates=creates)

    def unlink(self, path: Any, **options: Any) -> None:
        self._tell_removal(os.fspath(path))
        directory = options.get("dir_fd")
        above = "" if directory is None else str(Path(f"/proc/self/fd/{directory}").readlink())
        self._note_removal(str(Path(above, path)))
        _real["unlink"](path, **options)

    def _tell_removal(self, path: str) -> None:
        if self._disk_of(path) is not None:
            for look in self.on_removal:
                look(Path(path))

    def _note_removal(self, path: str) -> None:
        disk = self._disk_of(path)
        if disk is not None:
            disk.removing(path)

    def utime(self, path: Any) -> None:
        """Set the times of a file to now."""
        now_ns = time.time_ns()
        _real["utime"](path, ns=(now_ns, now_ns))

    def release(self, process: Process) -> None:
        """Close the files of a process that is dead, which frees its locks."""
        for descriptor in process.descriptors:
            self._paths.pop(descriptor, None)
            _real["close"](descriptor)
        process.descriptors.clear()

    def _disk_of(self, path: str) -> Disk | None:
        return next((disk for disk in self.disks if disk.covers(path)), None)

    # -- in force --------------------------------------------------------------

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Answer for the operating system within the block."""
        answers: list[tuple[Any, dict[str, Callable[..., Any]]]] = [
            (os, self._files()),
            (time, self._clocks()),
            # Those of the module `secrets`, and of clients.
            (random, {"_urandom": self.random.randbytes, "random": self.random.random}),
            (checked_files, {"replace_file": self.replace_file}),
            (directory, {"ThreadPoolExecutor": InTurn}),
            # The simulated loop runs their work itself.
            (flusher, {"started_threads": lambda _, threads: InTurn(threads)}),
            (removals, {"started_threads": lambda _, threads: InTurn(threads)}),
        ]
        before = [(module, {n: getattr(module, n) for n in new}) for module, new in answers]
        try:
            _set(answers)
            yield
        finally:
            _set(before)

    def _files(self) -> dict[str, Callable[..., Any]]:
        return {
            "open": self.open,
            "close": self.close,
            "fsync": self.fsync,
            "fdatasync": self.fsync,
            "pread": self.pread,
            "pwrite": self.pwrite,
            "rename": self.rename,
            "replace": self.rename,
            "unlink": self.unlink,
            "urandom": self.random.randbytes,
            "utime": self.utime,
        }

    def _clocks(self) -> dict[str, Callable[..., Any]]:
        loop = self.loop
        return {
            "monotonic": lambda: loop.now_s,
            "perf_counter": lambda: loop.now_s,
            "monotonic_ns": lambda: int(loop.now_s * 1e9),
            "clock_gettime_ns": lambda _: int(loop.now_s * 1e9),
            "time": self.wall_s,
            "time_ns": lambda: int(self.wall_s() * 1e9),
        }


def _set(answers: list[tuple[Any, dict[str, Callable[..., Any]]]]) -> None:
    for module, functions in answers:
        for name, function in functions.items():
            setattr(module, name, function)
