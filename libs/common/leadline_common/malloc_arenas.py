"""How many pools the C library's allocator keeps for the threads of this process."""

from __future__ import annotations

import ctypes
from typing import Final

MOST_ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""The parameter's number in glibc's malloc.h."""


def limit_arenas() -> bool:
    """Let all threads share two pools; return whether the C library has such a limit.

    With glibc each thread has a pool of its own, up to eight per processor. What a thread has freed
    then waits for that thread, so memory goes on growing as work moves from thread to thread.
    Python threads allocate one at a time, so that they lose nothing by sharing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_ARENA_MAX, MOST_ARENAS) == 1
