"""Freeze a process (SIGSTOP) so that nothing of it goes on.

The signal only asks for it: on a busy machine other threads of the process run on for a while.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

_DEADLINE_S: Final = 20.0


def freeze(pid: int) -> None:
    """Send SIGSTOP, and wait until every thread is stopped.

    Raises:
        AssertionError: one went on for 20 s.
        ProcessLookupError, FileNotFoundError: there is no such process.

    """
    os.kill(pid, signal.SIGSTOP)
    give_up_s = time.monotonic() + _DEADLINE_S
    while not _is_stopped(pid):
        assert time.monotonic() < give_up_s, f"process {pid} goes on after SIGSTOP"
        time.sleep(0.001)


def _is_stopped(pid: int) -> bool:
    if sys.platform != "linux":
        return True  # There is no cheap way to tell.
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    return all(_state(thread) in "TtZX" for thread in threads)


def _state(thread: Path) -> str:
    try:
        stat = (thread / "stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return stat.rpartition(")")[2].split()[0]
