"""A process whose wall clock and whose fsync a test decides about (`native/faulty_libc.c`).

    async with faulty_libc(cluster, "broker-1") as orders:
        orders.move_clock(3600.0)
        orders.fail_fsync(errno.EIO)

It takes Linux and a C compiler; the library is loaded by LD_PRELOAD into the one process alone.
"""

from __future__ import annotations

import asyncio
import mmap
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from leadline_cli.processes import Child
from tests.support.services.cluster import Cluster

_SOURCE: Final = Path(__file__).parent / "native/faulty_libc.c"
_FIELDS: Final = ("offset_ns", "drift_ppm", "since_ns", "fsync_errno", "clock_reads", "failed")
_ORDERS: Final = 4
"""How many of the fields the test writes."""
_MILLION: Final = 1_000_000
_NS: Final = 1_000_000_000


def why_not() -> str | None:
    """Say why this machine cannot do that; None if it can."""
    if sys.platform != "linux":
        return "faults of the C library need Linux"
    return (
        None
        if shutil.which("gcc")
        else "faults of the C library need gcc (packages gcc, libc6-dev)"
    )


class Orders:
    """What is to happen in one process, and what has."""

    def __init__(self, memory: mmap.mmap, cluster: Cluster, name: str) -> None:
        self._memory = memory
        self._cluster = cluster
        self._name = name
        self._now = dict.fromkeys(_FIELDS[:_ORDERS], 0)

    def move_clock(self, seconds: float, *, drift: float = 0.0) -> None:
        """Let the wall clock be wrong by so much, and by `drift` more for each second from now."""
        self._cluster.note("skew", self._name)
        self._write(
            offset_ns=int(seconds * _NS),
            drift_ppm=int(drift * _MILLION),
            since_ns=time.monotonic_ns(),
        )

    def fail_fsync(self, number: int) -> None:
        """Let every fsync fail with an error number from now on; 0: let it work again."""
        self._cluster.note("fail fsync" if number else "free", self._name)
        self._write(fsync_errno=number)

    @property
    def clock_reads(self) -> int:
        """How often the process has read its wall clock."""
        return self._read("clock_reads")

    @property
    def fsyncs_failed(self) -> int:
        """How many fsyncs have failed on order."""
        return self._read("failed")

    def _write(self, **orders: int) -> None:
        self._now |= orders
        struct.pack_into(f"{_ORDERS}q", self._memory, 0, *self._now.values())

    def _read(self, field: str) -> int:
        value: int = struct.unpack_from("q", self._memory, 8 * _FIELDS.index(field))[0]
        return value


def _compile(library: Path) -> None:
    command = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library)]
    subprocess.run([*command, str(_SOURCE)], check=True)


@asynccontextmanager
async def faulty_libc(cluster: Cluster, name: str) -> AsyncIterator[Orders]:
    """Start a service again with the library; yield what decides about its faults."""
    library, file = cluster.data_dir / "faulty_libc.so", cluster.data_dir / f"{name}.orders"
    await asyncio.to_thread(_compile, library)
    file.write_bytes(bytes(mmap.PAGESIZE))
    old = cluster.child(name)
    await old.stop()
    variables = [f"LD_PRELOAD={library}", f"FAULTY_LIBC={file}"]
    # A plain child: one that is forked from another process would not load the library.
    cluster.supervisor.children[name] = Child(name, ["env", *variables, *old.argv], old.log_path)
    cluster.restart(name)
    await cluster.until_ready(name)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as memory:
        yield Orders(memory, cluster, name)
