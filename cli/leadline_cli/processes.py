"""Child processes with log files: started, terminated, and killed if they do not end."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Protocol

STOP_DEADLINE_S: Final = 15.0
_POLL_S: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1


class Process(Protocol):
    """A process that was started: what a `Child` needs of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal, if the process has not ended."""


class Child:
    """A service as a child process, in its own session so that Ctrl-C does not reach it.

    Its output is appended to `log_path`.
    """

    def __init__(self, name: str, argv: Sequence[str], log_path: Path) -> None:
        self.name = name
        self.argv = list(argv)
        self.log_path = log_path
        self._process: Process | None = None

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

    async def _ended(self, deadline_s: float) -> bool:
        give_up = time.monotonic() + deadline_s
        while self.running and time.monotonic() < give_up:  # noqa: ASYNC110 - a process, not a task
            await asyncio.sleep(_POLL_S)
        return not self.running


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
