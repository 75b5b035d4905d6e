"""Make the pictures of docs/images: the browser tests take them, and this copies a few.

Usage: python scripts/screenshots.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TAKEN: Final = ROOT / ".artifacts" / "screenshots"
IMAGES: Final = ROOT / "docs" / "images"
MOST_BYTES: Final = 200_000

_TOPICS = "tests/browser/test_console_topics.py::test_a_page_looks_right"
PICTURES: Final = {
    "overview": "tests/browser/test_console.py::test_a_page_looks_right[Overview]",
    "orders": f"{_TOPICS}[orders]",
    "orders-records": f"{_TOPICS}[orders records]",
    "group": "tests/browser/test_console_groups.py::test_a_group_shows_who_reads_what_"
    "and_evicts_a_member",
    "tasks": "tests/browser/test_console_tasks.py::test_a_running_task_shows_what_it_waits_for_"
    "is_throttled_and_cancelled",
    "history-past": "tests/browser/test_console_history.py::"
    "test_a_slider_redraws_the_cluster_of_a_past_moment_by_keyboard",
}
"""The tests by the names of the pictures that they take."""


def main() -> None:
    """Run the tests, and copy their pictures."""
    taken = {name: TAKEN / f"{name}-1280.png" for name in PICTURES}
    for picture in taken.values():
        picture.unlink(missing_ok=True)
    # One test after the other: rates and charts are not to show a busy machine.
    tests = [sys.executable, "-m", "pytest", "-n0", "-m", "not soak", *PICTURES.values()]
    environment = os.environ | {"TAKE_SCREENSHOTS": "1"}
    done = subprocess.run(tests, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    IMAGES.mkdir(exist_ok=True)
    for name, picture in taken.items():
        if picture.stat().st_size > MOST_BYTES:
            sys.exit(f"{picture} is larger than {MOST_BYTES} bytes")
        shutil.copyfile(picture, IMAGES / f"console-{name}.png")


if __name__ == "__main__":
    main()
