"""How much space a disk has left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from leadline_cli.files import exists

_USED_UP: Final = 1 << 20
"""With less than this, no service can start."""


def free_bytes(path: Path) -> tuple[int, Path]:
    """Return the free space for a path, and the nearest directory above it that exists."""
    try:
        real = Path(os.path.realpath(path))  # `resolve` fails for a loop of links
    except FileNotFoundError:  # The working directory was deleted; its disk is still there.
        real = path
    directory = next(one for one in (real, *real.parents) if exists(one))
    return shutil.disk_usage(directory).free, directory


def full_disk_advice(path: Path) -> str:
    """Return what to do if the disk of a path is full, else nothing."""
    free, _ = free_bytes(path)
    if free >= _USED_UP:
        return ""
    return f"the disk of {path} is full ({free >> 10} KiB free): free some space, then try again"
