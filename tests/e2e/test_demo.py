"""`leadline demo` from end to end, as a user runs it."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

DEADLINE_S = 120
"""Twice what the demo promises: this machine may be busy with other tests."""


async def run_demo(*arguments: str) -> tuple[int, str]:
    """Run the demo to its end and return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "leadline_cli",
        "demo",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode()


def count_of(name: str, output: str) -> int:
    """Return the number that the demo's last table gives for `name`."""
    found = re.findall(rf"^ *{name} (\d+)$", output, re.MULTILINE)
    assert len(found) == 1, f"no count of {name} in:\n{output}"
    return int(found[0])


async def test_demo_loses_and_doubles_nothing() -> None:
    code, output = await run_demo()
    assert code == 0, output
    sent = count_of("sent", output)
    assert sent >= 20_000
    assert count_of("acknowledged", output) == sent
    for name in ("lost", "duplicated", "reordered"):
        assert count_of(name, output) == 0, output
    assert output.count(" was closed") == 2, output  # The sessions of both killed processes.
    assert "/docs" in output
    assert "Traceback" not in output


@pytest.mark.soak
async def test_demo_takes_a_file_of_the_user(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"line {number} of mine\n" for number in range(30_000)))
    code, output = await run_demo("--file", str(lines))
    assert code == 0, output
    assert count_of("sent", output) == 30_000
    assert count_of("lost", output) == 0
