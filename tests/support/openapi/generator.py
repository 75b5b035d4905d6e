"""openapi-python-client, a client generator, in an environment of its own.

It is installed from `requirements.lock` beside this file, once for each content of that file.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import subprocess
from pathlib import Path

from leadline_client.file_lock import FileLock

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(__file__).resolve().parent
LOCK = FOLDER / "requirements.lock"
SETTINGS = FOLDER / "generator.yml"


def environment() -> Path:
    """Return the folder of the programs of an environment that has the generator."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = ROOT / ".artifacts" / f"client-generator-{digest}"
    folder.parent.mkdir(exist_ok=True)
    lock = FileLock.acquire(folder.with_suffix(".lock"))  # Two runs may begin at once.
    try:
        if not (folder / "complete").exists():
            _install(folder)
    finally:
        lock.release()
    return folder / "bin"


def generate(document: Path, output: Path) -> str:
    """Generate a client package from a document, and return what the generator said of it."""
    programs = environment()
    done = subprocess.run(
        [
            programs / "openapi-python-client",
            *("generate", "--meta", "none", "--config", SETTINGS),
            *("--path", document, "--output-path", output),
        ],
        # It formats what it has written with its own ruff.
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _install(folder: Path) -> None:
    registry: dict[str, str] = importlib.import_module("scripts.setup").uv_environment()
    uv = shutil.which("uv") or str(ROOT / ".venv/bin/uv")
    python = folder / "bin/python"
    commands: list[list[str | Path]] = [
        [uv, "venv", "--quiet", "--clear", folder],
        [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, LOCK],
    ]
    for command in commands:
        subprocess.run(command, env=registry | {"VIRTUAL_ENV": str(folder)}, check=True)
    (folder / "complete").touch()
