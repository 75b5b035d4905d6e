"""openapi-python-client, a client generator, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support import own_environment

FOLDER = Path(__file__).resolve().parent
LOCK = FOLDER / "requirements.lock"
SETTINGS = FOLDER / "generator.yml"


def environment() -> Path:
    """Return the folder of the programs of an environment that has the generator."""
    return own_environment.environment("client-generator", LOCK)


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
