"""Asynchronous fsyncs: the kernel does them by itself (Linux AIO), without a thread of ours.

A thread that has waited for the disk has to wait for the interpreter's lock as well, and takes it
from the event loop: beside a busy loop an fsync of 0.3 ms took 6 ms. The kernel tells the loop by a
descriptor instead.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import structlog
from caio import linux_aio

logger = structlog.get_logger(__name__)

MOST_AT_ONCE: Final = 64
_UNSIGNED: Final = 1 << 64
"""The library shows a negative result of the kernel as an unsigned number of 64 bits."""
_FOR_EVER: Final = -1

OnDone = Callable[[OSError | None], None]
"""Learns of the end of an fsync; it must not raise."""


class StartedFsync(Protocol):
    """An fsync that was started."""

    def wait(self) -> None:
        """Return when it has ended and was told of. Any thread may wait."""


class Fsyncs(Protocol):
    """Starts fsyncs, and tells of their ends on the event loop."""

    def start(self, fd: int, on_done: OnDone) -> StartedFsync | None:
        """Fsync the content of a file that stays open until then; None if that is not possible.

        Call it on the event loop. `on_done` is called there too, later.
        """


class KernelFsyncs:
    """Implements `Fsyncs`. Owned by the event loop on which the first one is started."""

    def __init__(self) -> None:
        """Create the kernel's queue.

        Raises:
            SystemError: the kernel has too many already, or knows no such calls.

        """
        self._context = linux_aio.Context(max_requests=MOST_AT_ONCE)
        self._owner: int | None = None
        self._running = 0

    def start(self, fd: int, on_done: OnDone) -> StartedFsync | None:
        """See `Fsyncs.start`."""
        if self._running == MOST_AT_ONCE or not self._is_owned():
            return None
        started = _KernelFsync(self, on_done)
        operation = linux_aio.Operation.fdsync(fd)
        operation.set_callback(started.ended)
        try:
            if not self._context.submit(operation):
                return None
        except (OverflowError, SystemError, ValueError):
            return None  # Nothing was started: the file system, say, does not do that.
        self._running += 1
        return started

    def take_one(self) -> None:
        """Wait until at least one has ended, and tell of it; on the event loop's thread."""
        self._take(at_least=1, timeout_s=_FOR_EVER)

    def is_owner(self) -> bool:
        """Tell whether this is the thread of the event loop."""
        return threading.get_ident() == self._owner

    def ended(self) -> None:
        """Note that one has ended."""
        self._running -= 1

    def _is_owned(self) -> bool:
        if self._owner is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return False
            loop.add_reader(self._context.fileno, self._on_ended)
            self._owner = threading.get_ident()
        return self.is_owner()

    def _on_ended(self) -> None:
        with suppress(BlockingIOError):  # `take_one` was first.
            self._context.poll()
        self._take(at_least=0, timeout_s=0)

    def _take(self, at_least: int, timeout_s: int) -> None:
        try:
            self._context.process_events(MOST_AT_ONCE, at_least, timeout_s)
        except SystemError as problem:
            if problem.args[:1] != (errno.EINTR,):
                raise


class _KernelFsync:
    """Implements `StartedFsync`."""

    __slots__ = ("_fsyncs", "_on_done", "_unended")

    def __init__(self, fsyncs: KernelFsyncs, on_done: OnDone) -> None:
        self._fsyncs = fsyncs
        self._on_done = on_done
        self._unended = threading.Lock()
        self._unended.acquire()

    def ended(self, result: int) -> None:
        """Tell of the end, with the kernel's result."""
        self._fsyncs.ended()
        try:
            self._on_done(error_of(result))
        finally:
            self._unended.release()

    def wait(self) -> None:
        """See `StartedFsync.wait`."""
        if self._fsyncs.is_owner():
            while self._unended.locked():
                self._fsyncs.take_one()
        else:
            with self._unended:
                pass


def error_of(result: int) -> OSError | None:
    """Return the error that a result stands for: 0, or minus a number as the library shows it."""
    number = _UNSIGNED - result if result else 0
    return OSError(number, os.strerror(number)) if number else None


def kernel_fsyncs() -> KernelFsyncs | None:
    """Return what starts fsyncs in the kernel; None where it does not do that for us."""
    if linux_aio is None:  # Another system than Linux.
        return None
    try:
        return KernelFsyncs()
    except SystemError as problem:
        logger.info("fsyncs need threads here", problem=str(problem))
        return None
