"""A folder that one process of a test run fills, for all of them to read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline_client.file_lock import FileLock


def shared_folder(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], None]) -> Path:
    """Return the run's folder of this name; whoever asks first lets `fill` make its content.

    If `fill` fails, the next who asks tries again.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, draft = base / name, base / f"{name}.draft"
    with FileLock.acquire(base / f"{name}.lock"):
        if not folder.exists():
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            fill(draft)
            draft.rename(folder)
    return folder
