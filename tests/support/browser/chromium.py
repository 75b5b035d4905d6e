"""Finding the browser of the tests, or installing it: Chromium as the operating system has it.

Usage: python -m tests.support.browser.chromium

Installs Chromium where there is none, if it can (as root, with apt-get), and says so; then
prints the tests that need it, for `make test` to run. Where there is still none, it prints
nothing and says why; but under CI it always prints them, so that they fail.

Without its window (the headless shell) the same engine needs half the time. CI installs that
beside a whole Chromium, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

HEADLESS = "chromium-headless-shell"
NAMES = (HEADLESS, "chromium", "chromium-browser", "google-chrome")
INSTALL = (
    "apt-get update && (apt-get install -y --no-install-recommends chromium-headless-shell"
    " || apt-get install -y --no-install-recommends chromium)"
)
TESTS = "tests/browser"


class NoBrowserError(Exception):
    """There is no browser to test with; the message says how to come by one."""


def chromium() -> str:
    """Return the path of the browser.

    Raises:
        NoBrowserError: there is none on the PATH.

    """
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    raise NoBrowserError(f"none of {', '.join(NAMES)} is on the PATH; as root: {INSTALL}")


def main() -> None:
    """Print what to run."""
    try:
        _ensure()
    except NoBrowserError as error:
        if not os.environ.get("CI"):
            say(f"LEFT OUT, for want of a browser: {TESTS} ({error})")
            return
    sys.stdout.write(TESTS + "\n")


def _ensure() -> None:
    """Install a browser where that is wanted. Raises NoBrowserError if there is none in the end."""
    wanted = HEADLESS if os.environ.get("CI") else None
    there = shutil.which(wanted) if wanted else any(map(shutil.which, NAMES))
    if not there and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        say("installing Chromium for the browser tests")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(INSTALL, shell=True, env=quiet, stdout=sys.stderr, check=False)  # noqa: S602 - a constant
        if done.returncode:
            say("Chromium could not be installed")
    chromium()


def say(line: str) -> None:
    sys.stderr.write(f"=== {line}\n")


if __name__ == "__main__":
    main()
