"""The threads of a service share pools of memory, and what is free in them is returned."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc has the pools")

POOLS = """
import ctypes, sys, threading
from leadline_common.freed_memory import return_freed_memory
if sys.argv[1] == "shared":
    assert return_freed_memory()
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

RETURNED = """
import time
from pathlib import Path
from leadline_common.freed_memory import return_freed_memory
def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
pieces = [bytes(100_000) for _ in range(400)]
kept = pieces[::20]
del pieces
before = resident()
assert return_freed_memory(period_s=0.05)
give_up = time.monotonic() + 20
while before - resident() < 20_000_000:
    assert time.monotonic() < give_up, (before, resident())
    time.sleep(0.05)
"""


def run(program: str, *arguments: str) -> bytes:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_threads_share_two_pools() -> None:
    assert run(POOLS, "alone").count(b"<heap nr=") > 2
    assert run(POOLS, "shared").count(b"<heap nr=") == 2


def test_what_is_free_between_what_is_in_use_is_returned() -> None:
    run(RETURNED)
