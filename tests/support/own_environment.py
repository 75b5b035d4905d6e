"""Environments of their own for programs of tests that cannot share one with the project.

Each is installed from a lock, once for each content of that file.
"""

from __future__ import annotations

import hashlib
import importlib
import shutil
import subprocess
from pathlib import Path

from leadline_client.file_lock import FileLock

ROOT = Path(__file__).resolve().parents[2]


def environment(name: str, lock: Path) -> Path:
    """Return the folder of the programs of an environment with what `lock` lists."""
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    folder = ROOT / ".artifacts" / f"{name}-{digest}"
    folder.parent.mkdir(exist_ok=True)
    running = FileLock.acquire(folder.with_suffix(".lock"))  # Two runs may begin at once.
    try:
        if not (folder / "complete").exists():
            _install(folder, lock)
    finally:
        running.release()
    return folder / "bin"


def _install(folder: Path, lock: Path) -> None:
    registry: dict[str, str] = importlib.import_module("scripts.setup").uv_environment()
    uv = shutil.which("uv") or str(ROOT / ".venv/bin/uv")
    python = folder / "bin/python"
    commands: list[list[str | Path]] = [
        [uv, "venv", "--quiet", "--clear", folder],
        [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, lock],
    ]
    for command in commands:
        subprocess.run(command, env=registry | {"VIRTUAL_ENV": str(folder)}, check=True)
    (folder / "complete").touch()
