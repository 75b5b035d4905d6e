"""How much space a disk has left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def free_bytes(path: Path) -> tuple[int, Path]:
    """Return the free space for a path, and the nearest directory above it that exists."""
    real = Path(os.path.realpath(path))  # `resolve` fails for a loop of links
    directory = next(one for one in (real, *real.parents) if one.exists())
    return shutil.disk_usage(directory).free, directory
