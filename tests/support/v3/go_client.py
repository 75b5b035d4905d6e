"""The program that uses the Go SDK of the v3 API, built with the machine's Go or one of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.own_environment import environment

SOURCE = Path(__file__).resolve().parents[2] / "contract" / "v3_sdk"
LOCK = Path(__file__).resolve().parent / "requirements.lock"
_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}


def build(program: Path) -> None:
    """Build the program; the test is left out where that takes what the machine does not have.

    With `CI=true` it fails there.
    """
    try:
        go = shutil.which("go") or str(environment("go", LOCK) / "go")
        _run(go, "mod", "download")
    except (OSError, subprocess.CalledProcessError) as problem:
        reason = f"the Go SDK of the v3 API is not tested: {_said(problem)}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    # Without optimization: the program runs once, and this builds faster.
    _run(go, "build", "-gcflags=all=-N -l", "-o", str(program), ".")


def _run(*command: str) -> None:
    environment_of_go = {**os.environ, **_ENVIRONMENT}
    subprocess.run(
        command, cwd=SOURCE, env=environment_of_go, check=True, capture_output=True, text=True
    )


def _said(problem: OSError | subprocess.CalledProcessError) -> str:
    return str(getattr(problem, "stderr", "") or problem).strip()
