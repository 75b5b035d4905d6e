"""A pool of threads that are all there from the beginning."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

WORKERS: Final = min(32, (os.cpu_count() or 1) + 4)
"""How many threads do what blocks, in a process: as many as in a pool of Python's own size."""


def started_threads(name: str, threads: int) -> ThreadPoolExecutor:
    """Return a pool whose `threads` threads have started; each has the `name` and a number.

    Raises:
        RuntimeError: the system lets this process start no more threads; none of them is left.

    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    all_started = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(all_started.wait)
    except RuntimeError:
        all_started.abort()  # Python would wait at its end for those that have started.
        pool.shutdown()
        raise
    all_started.wait()
    return pool
