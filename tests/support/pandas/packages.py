"""pandas in a folder of its own, once for each content of `requirements.lock` beside this file.

It is not in the environment of all tests: pyarrow imports pandas where it finds it, which takes a
second in each of Spark's workers, and the connector has to work without it.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from leadline_client.file_lock import FileLock

ROOT = Path(__file__).resolve().parents[3]
LOCK = Path(__file__).with_name("requirements.lock")


def environment() -> dict[str, str]:
    """Return the variables of a process that can import pandas beside everything else."""
    return {**os.environ, "PYTHONPATH": str(_folder())}


def _folder() -> Path:
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = ROOT / ".artifacts" / f"pandas-{digest}"
    folder.parent.mkdir(exist_ok=True)
    lock = FileLock.acquire(folder.with_suffix(".lock"))  # Two runs may begin at once.
    try:
        if not (folder / "complete").exists():
            _install(folder)
    finally:
        lock.release()
    return folder


def _install(folder: Path) -> None:
    registry: dict[str, str] = importlib.import_module("scripts.setup").uv_environment()
    uv = shutil.which("uv") or str(ROOT / ".venv/bin/uv")
    command = [uv, "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
    where = ["--python", sys.executable, "--target", str(folder), "-r", str(LOCK)]
    subprocess.run([*command, *where], env=registry, check=True)
    (folder / "complete").touch()
