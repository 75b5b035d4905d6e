"""Child processes with log files: started, terminated, and killed if they do not end."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Protocol

STOP_DEADLINE_S: Final = 45.0
"""Longer than a service waits for a disk that hangs (`log.flush.timeout.ms`, 30 s by default)."""
_POLL_S: Final = 0.02
_RUN_MODULE: Final = (sys.executable, "-P", "-m")
_PR_SET_PDEATHSIG: Final = 1


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs an installed module with this Python.

    Without `-P`, Python would look for every module in the working directory first: a file of the
    user there, such as `logging.py`, would be imported instead of Python's own.
    """
    return (*_RUN_MODULE, module, *arguments)


def module_of(command: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the module and the arguments of what `module_command` has returned."""
    module, *arguments = command[len(_RUN_MODULE) :]
    return module, arguments


class Process(Protocol):
    """A process that was started: what a `Child` needs of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal, if the process has not ended."""


class PidFd:
    """A file descriptor of a process (`pidfd`), which becomes readable when the process ends.

    It is closed with the last reference to it: another thread may be about to use it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def of(cls, pid: int) -> PidFd | None:
        """Return the descriptor of a process that nobody has reaped; None if there are none."""
        try:
            return cls(os.pidfd_open(pid))
        except (AttributeError, OSError):
            return None

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor


class Child:
    """A service as a child process, in its own session so that Ctrl-C does not reach it.

    Its output is appended to `log_path`.
    """

    def __init__(self, name: str, argv: Sequence[str], log_path: Path) -> None:
        self.name = name
        self.argv = list(argv)
        self.log_path = log_path
        self._process: Process | None = None
        self._pidfd: PidFd | None = None

    @property
    def pidfd(self) -> PidFd | None:
        """What tells that the latest run has ended; None where the system has no such thing."""
        return self._pidfd

    @property
    def pid(self) -> int | None:
        """The process id of the latest run."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive; one stopped by SIGSTOP is."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the latest run: None while it runs, negative for a signal."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = self._spawn(log)
        self._pidfd = self._pidfd_of(self._process)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is alive."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    async def stop(self, deadline_s: float = STOP_DEADLINE_S) -> None:
        """Terminate the process, and kill it after `deadline_s` seconds."""
        # A process stopped by SIGSTOP handles SIGTERM only after SIGCONT.
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not await self._ended(deadline_s):
            self.signal(signal.SIGKILL)
            await self._ended(deadline_s)

    async def kill(self) -> None:
        """Kill the process, as a crash would."""
        self.signal(signal.SIGKILL)
        await self._ended(STOP_DEADLINE_S)

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of the log."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _spawn(self, log: BinaryIO) -> Process:
        return subprocess.Popen(  # noqa: S603 - our own command, no shell
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=dies_with_parent(),  # noqa: PLW1509 - one prctl call, nothing else
        )

    def _pidfd_of(self, process: Process) -> PidFd | None:
        return PidFd.of(process.pid)

    async def _ended(self, deadline_s: float) -> bool:
        give_up = time.monotonic() + deadline_s
        while self.running and time.monotonic() < give_up:  # noqa: ASYNC110 - a process, not a task
            await asyncio.sleep(_POLL_S)
        return not self.running


async def wait_for_end(children: Iterable[Child], stop: asyncio.Event, within_s: float) -> None:
    """Wait until one of the running `children` ends, or `stop` is set, or for `within_s`."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    watched = [child.pidfd for child in children if child.running and child.pidfd is not None]
    for pidfd in watched:
        loop.add_reader(pidfd, ended.set)
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, ended)]
    try:
        await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        for pidfd in watched:
            loop.remove_reader(pidfd)


def dies_with_parent() -> Callable[[], None] | None:
    """Return the `preexec_fn` of a child that must not outlive its parent; None outside Linux.

    The kernel then kills the child when the thread that started it ends, for whatever reason. The
    setting survives exec, and grandchildren do not inherit it.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def request_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            # The parent ended between fork and prctl, so the signal will never come.
            os._exit(1)

    return request_signal
