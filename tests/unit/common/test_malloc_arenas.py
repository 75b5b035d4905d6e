"""The threads of a service share pools of memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

POOLS = """
import ctypes, sys, threading
from leadline_common.malloc_arenas import limit_arenas
if sys.argv[1] == "limited":
    assert limit_arenas()
together = threading.Barrier(8)
def allocate():
    kept = [bytes(2000) for _ in range(100)]
    together.wait()
    return kept
threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = libc.fdopen(1, b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fflush(ctypes.c_void_p(out))
"""


def pools(how: str) -> int:
    """Return how many pools eight threads have that allocate at the same time."""
    command = [sys.executable, "-c", POOLS, how]
    return subprocess.run(command, capture_output=True, check=True).stdout.count(b"<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the limit is one of glibc")
def test_threads_share_two_pools() -> None:
    assert pools("unlimited") > 2
    assert pools("limited") == 2
