"""`leadline demo` that is interrupted. Each test has a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, sys
from leadline_cli.commands import demo
from leadline_cli.main import app

class Cluster:
    def __init__(self, options):
        print(options.data_dir, flush=True)

    async def start(self):
        print("starts", flush=True)
        await asyncio.sleep(600)

    async def stop(self):
        print("stops", flush=True)
        if "hangs" in sys.argv[-1]:
            await asyncio.sleep(600)

demo.Supervisor = Cluster
app(["demo", "--file", sys.argv[-1]])
"""


def begun(directory: Path, name: str) -> tuple[subprocess.Popen[str], Path]:
    """Start a demo, and return it with its data directory once its cluster starts."""
    file = directory / name
    file.write_text("a line\n")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(directory), "TERM": "dumb"},
    )
    until_printed(process, "starts")
    (data_dir,) = directory.glob("leadline-demo-*")
    return process, data_dir


def until_printed(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert any(line == found.rstrip() for found in process.stdout)


def test_a_demo_that_sigterm_interrupts_removes_its_data(tmp_path: Path) -> None:
    process, data_dir = begun(tmp_path, "lines")
    with process:
        process.terminate()
        until_printed(process, "stops")
        process.communicate(timeout=60)

    assert process.returncode == 130
    assert not data_dir.exists()


def test_a_second_sigterm_ends_a_demo_at_once(tmp_path: Path) -> None:
    """Instead of half of its orderly end: the cluster's processes end with it."""
    process, _ = begun(tmp_path, "hangs")
    with process:
        process.terminate()
        until_printed(process, "stops")
        process.terminate()
        process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM
