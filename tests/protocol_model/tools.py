"""Finding Spin and a C compiler, or installing them as the operating system has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from leadline_client.file_lock import FileLock

TOOLS = ("spin", "gcc")
INSTALL = (
    "apt-get update && apt-get install -y --no-install-recommends spin gcc libc6-dev"  # On Debian.
)
LOCK = Path(__file__).resolve().parents[2] / ".artifacts/model-checker.lock"


class NoModelCheckerError(Exception):
    """A tool of the model checker is missing; the message says how to come by it."""


def require() -> None:
    """Return if the model checker is there, or could be installed.

    Raises:
        NoModelCheckerError: it is not.

    """
    if not _missing():
        return
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        LOCK.parent.mkdir(exist_ok=True)
        with FileLock.acquire(LOCK):  # Several tests may find at once that it is missing.
            if _missing():
                _install()
    missing = _missing()
    if missing:
        raise NoModelCheckerError(
            f"{' and '.join(missing)} not found; install Spin and GCC, on Debian as root: {INSTALL}"
        )


def _missing() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def _install() -> None:
    sys.stderr.write("=== installing Spin and GCC for the search of the protocol's model\n")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(INSTALL, shell=True, env=quiet, stdout=sys.stderr, check=False)  # noqa: S602 - a constant
    if done.returncode:
        sys.stderr.write("=== Spin and GCC could not be installed\n")
