"""Tie a child process to the life of its parent (Linux; elsewhere nothing happens)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def dies_with_parent() -> Callable[[], None] | None:
    """Return what a new child is to run before its program, for `preexec_fn`.

    The kernel then kills the child when the thread that started it ends, however
    that came about. The setting survives exec, and is not handed to grandchildren.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def tie() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            # The parent ended between fork and prctl, so no signal will ever come.
            os._exit(1)

    return tie
