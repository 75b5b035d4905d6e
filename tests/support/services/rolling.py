"""Restarting all services of a cluster in turn, as `leadline cluster roll` does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.services.up import command_line


async def roll(data_dir: Path, *words: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, output and notes."""
    argv = command_line("cluster", "roll", *words, "--json", "--data-dir", str(data_dir))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe)
    out, notes = await process.communicate()
    return process.returncode or 0, out.decode(), notes.decode()
