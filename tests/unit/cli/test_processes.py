"""Child processes end when they are stopped, and never outlive the supervisor."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from leadline_cli.processes import Child
from tests.support.services.cluster import is_alive, wait_until

SLEEPER = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"]
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
PARENT = """
import sys, time
from pathlib import Path
from leadline_cli.processes import Child
child = Child("c", [sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""


async def up(child: Child, times: int = 1) -> None:
    async def says_so() -> bool:
        return child.tail().count("up") == times

    await wait_until(says_so, "the child runs")


async def test_a_child_ends_when_asked_and_its_output_is_kept(tmp_path: Path) -> None:
    child = Child("sleeper", SLEEPER, tmp_path / "logs" / "sleeper.log")
    child.start()
    await up(child)
    await child.stop()
    assert child.exit_code == -signal.SIGTERM
    child.start()
    await up(child, times=2)
    await child.kill()
    assert child.log_path.read_text() == "up\nup\n"


async def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    child = Child("deaf", [sys.executable, "-c", DEAF], tmp_path / "log")
    child.start()
    await up(child)
    await child.stop(deadline_s=0.2)
    assert child.exit_code == -signal.SIGKILL


async def test_a_frozen_child_is_stopped_too(tmp_path: Path) -> None:
    child = Child("frozen", SLEEPER, tmp_path / "log")
    child.start()
    await up(child)
    child.signal(signal.SIGSTOP)
    await child.stop()
    assert child.exit_code == -signal.SIGTERM


async def test_no_child_outlives_a_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    parent = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    await parent.wait()

    async def gone() -> bool:
        return not is_alive(pid)

    await wait_until(gone, "the child is gone")
