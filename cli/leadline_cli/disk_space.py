"""How much space a disk has left."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from leadline_cli.files import exists

_USED_UP: Final = 1 << 20
"""With less than this, no service can start."""
LITTLE_BYTES: Final = 1 << 30
_SMALL_DISK_SHARE: Final = 10


def has_little_space(directory: Path) -> bool:
    """Tell whether the disk of a directory has less than 1 GiB left, and less than a tenth."""
    usage = shutil.disk_usage(directory)
    return usage.free <= min(LITTLE_BYTES, usage.total // _SMALL_DISK_SHARE)


def free_bytes(path: Path) -> tuple[int, Path]:
    """Return the free space for a path, and the nearest directory above it that exists."""
    try:
        real = Path(os.path.realpath(path))  # `resolve` fails for a loop of links
    except FileNotFoundError:  # The working directory was deleted; its disk is still there.
        real = path
    directory = next(one for one in (real, *real.parents) if exists(one))
    return shutil.disk_usage(directory).free, directory


def own_disks(directory: Path) -> list[Path]:
    """Return the directories directly in this one that are on other disks than it is.

    Of several on the same disk, the first by name. What cannot be read is left out.
    """
    found: dict[int, Path] = {}
    with suppress(OSError):
        for path in sorted(directory.iterdir()):
            if path.is_dir():
                found.setdefault(path.stat().st_dev, path)
        found.pop(directory.stat().st_dev, None)
    return list(found.values())


def full_disk_advice(*paths: Path) -> str:
    """Return what to do if the disk of one of these paths is full, else nothing."""
    for path in paths:
        free, _ = free_bytes(path)
        if free < _USED_UP:
            return (
                f"the disk of {path} is full ({free >> 10} KiB free): free some space, then try "
                "again"
            )
    return ""
