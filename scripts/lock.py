"""Resolve requirements.lock again: every dependency of every member, with its hashes.

The lock names no package registry, because each machine brings its own; that is why it is
requirements.lock and not uv.lock, which records addresses. Versions already in the lock are kept
unless `--upgrade` (or `--upgrade-package NAME`) is given; arguments are passed on to uv.

Usage: python scripts/lock.py [ARGUMENT OF uv pip compile ...]
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Run the resolver; its exit code is the answer."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    command = [
        shutil.which("uv") or str(ROOT / ".venv/bin/uv"),
        *("pip", "compile", "--quiet", "--universal", "--generate-hashes"),
        *("--python-version", settings["project"]["requires-python"].removeprefix(">=")),
        *("--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate"),
    ]
    for member in settings["tool"]["uv"]["sources"]:
        command += ["--no-emit-package", member]
    for group in settings["dependency-groups"]:
        command += ["--group", group]
    command += ["pyproject.toml", "--output-file", "requirements.lock", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
