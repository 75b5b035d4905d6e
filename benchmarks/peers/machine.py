"""What a figure depends on besides the code: the machine, its load, the versions."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from leadline_cli.java_runtime import find_java

ROOT: Final = Path(__file__).resolve().parents[2]


class Machine(msgspec.Struct, frozen=True):
    """The machine and what runs on it."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    filesystem: str
    congestion_control: str
    python: str
    java: str


def machine(directory: Path) -> Machine:
    """Describe this machine, and the filesystem of a directory."""
    return Machine(
        processor=_field(Path("/proc/cpuinfo"), "model name"),
        cores=os.cpu_count() or 0,
        memory_gib=round(int(_field(Path("/proc/meminfo"), "MemTotal").split()[0]) / 2**20, 1),
        kernel=platform.release(),
        filesystem=_filesystem(Path("/proc/self/mounts").read_text(), directory),
        congestion_control=Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        python=platform.python_version(),
        java=_printed(str(find_java()), "--version").partition("\n")[0],
    )


def load() -> tuple[float, float, float]:
    """Return the load averages of 1, 5 and 15 minutes."""
    return os.getloadavg()


def commit() -> str:
    """Return the short commit of this checkout, with a `+` if files differ from it."""
    if changed := _printed("git", "status", "--porcelain", "--untracked-files=no"):
        changed = "+"
    return _printed("git", "rev-parse", "--short=10", "HEAD") + changed


def _filesystem(mounts: str, directory: Path) -> str:
    """Return the type of the filesystem that a directory is on: that of the longest mount point."""
    rows = [line.split()[1:3] for line in mounts.splitlines()]
    holding = [(point, kind) for point, kind in rows if directory.resolve().is_relative_to(point)]
    return max(holding, key=lambda row: len(row[0]))[1] if holding else "unknown"


def _field(path: Path, name: str) -> str:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "unknown")


def _printed(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
