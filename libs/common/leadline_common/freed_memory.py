"""What the C library keeps of the memory that this process has freed.

glibc gives each thread a pool of its own, and returns to the system only the end of a pool. A
broker's buffers come and go in fifteen threads, so that faults made it larger and larger, although
it held nothing more.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Final

MOST_ARENAS: Final = 2
TRIM_PERIOD_S: Final = 60.0
_M_ARENA_MAX: Final = -8
"""The parameter's number in glibc's malloc.h."""


def return_freed_memory(period_s: float = TRIM_PERIOD_S) -> bool:
    """Let all threads share two pools, and return every `period_s` what is free in them.

    Python threads allocate one at a time, so that they lose nothing by sharing. A return takes some
    milliseconds at most, in a thread of its own. Returns False where the C library is another one,
    and does nothing then.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        return False
    libc.mallopt(_M_ARENA_MAX, MOST_ARENAS)
    trimming = threading.Thread(
        target=_trim, args=(libc, period_s), name="freed-memory", daemon=True
    )
    trimming.start()
    return True


def _trim(libc: ctypes.CDLL, period_s: float) -> None:
    while True:
        time.sleep(period_s)
        libc.malloc_trim(0)
