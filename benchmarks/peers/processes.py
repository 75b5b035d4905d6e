"""Runs clients as processes of their own, and measures processes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from leadline_cli.processes import dies_with_parent
from peers.clients.work import Stopwatch, Work

FOLDER: Final = Path(__file__).resolve().parents[1]
MOST_S: Final = 900.0


class ClientFailed(RuntimeError):
    """A client's process ended with an error; the message has the end of what it printed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Client:
    """A client library, and the Python whose environment has it."""

    name: str
    python: Path = Path(sys.executable)

    async def do(self, task: str, bootstrap: str, work: Work) -> Stopwatch:
        """Do work in a new process, and return what it took.

        Raises:
            ClientFailed: the process ended with an error, or took too long.

        """
        process = await asyncio.create_subprocess_exec(
            *(str(self.python), "-m", "peers.clients.worker", self.name, bootstrap, task),
            json.dumps(dataclasses.asdict(work)),
            cwd=FOLDER,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=dies_with_parent(),
        )
        try:
            async with asyncio.timeout(MOST_S):
                output, errors = await process.communicate()
        except TimeoutError as problem:
            raise ClientFailed(f"{self.name}: {task} took more than {MOST_S:.0f} s") from problem
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise ClientFailed(f"{self.name}: {task}: {errors.decode(errors='replace')[-2000:]}")
        return Stopwatch(**json.loads(output))


def resident_mib(pid: int) -> float:
    """Return how much memory of a process is resident."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def proportional_mib(pid: int) -> float:
    """Return a process's proportional set size (PSS): each process has its part of shared pages."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return int(rollup.split("\nPss:")[1].split()[0]) / 1024


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """Return the processes that descend from one, as far as they live."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            children = [int(child) for child in (task / "children").read_text().split()]
            for child in children:
                found += [child, *descendants(child)]
    return found
