"""What `leadline host` does when one of its processes ends, or cannot be started."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from leadline_cli import host_runner
from leadline_cli.host_runner import HostProblem, HostRunner, Restarts
from leadline_cli.processes import Child
from tests.support.services.cluster import wait_until


def test_who_ends_at_once_starts_again_after_longer_and_longer_pauses() -> None:
    restarts, now, pauses = Restarts(), 100.0, []
    for _ in range(7):
        restarts.started(now)
        assert restarts.due_at is None
        now += 0.5
        pauses.append(restarts.ended(now))
        assert restarts.due_at == now + pauses[-1]
        now = restarts.due_at
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    restarts.started(now)
    assert restarts.ended(now + 59) == 30
    restarts.started(now)
    assert restarts.ended(now + 60) == 1, "it has run for a while"


@pytest.fixture(name="quick")
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_runner, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(host_runner, "_LONGEST_PAUSE_S", 0.01)


def up(said: list[str], name: str) -> int:
    return sum(line.startswith(f"{name} runs") for line in said)


@pytest.mark.usefixtures("quick")
async def test_a_process_that_cannot_be_started_does_not_end_the_others(tmp_path: Path) -> None:
    said: list[str] = []
    runner = HostRunner((), has_zookeeper=False, report=said.append)
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    good = Child("broker", sleeper, tmp_path / "broker.log")
    logs = tmp_path / "logs"
    logs.write_text("no directory")
    bad = Child("coordinator", sleeper, logs / "coordinator.log")
    runner._start(good)
    runner._start(bad)
    stop = asyncio.Event()
    watching = asyncio.create_task(runner._watch(stop))

    async def tried(times: int) -> bool:
        return sum("coordinator does not start" in line for line in said) >= times

    try:
        await wait_until(partial(tried, 3), "it is tried again")
        assert not watching.done()
        assert good.running
        assert up(said, "broker") == 1
        logs.unlink()

        async def runs() -> bool:
            return bad.running

        await wait_until(runs, "it runs after all")
        stop.set()
        await watching
    finally:
        stop.set()
        await asyncio.gather(good.kill(), bad.kill())


BROKER = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("stopped", flush=True) or exit())
print("up", flush=True)
signal.pause()
"""
HOST = """
import asyncio, signal, sys
from pathlib import Path
from leadline_cli.commands.hosts import _run
from leadline_cli.host_runner import HostRunner
from leadline_cli.processes import Child

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # Under nohup it is ignored, and stays so.
say = lambda text: print(text, flush=True)
runner = HostRunner((), False, say)
broker = Child("broker", [sys.executable, "-c", sys.argv[2]], Path(sys.argv[1]))

async def main():
    running = asyncio.create_task(_run(runner))
    await asyncio.sleep(0)  # Now it handles signals.
    runner._start(broker)
    await running

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
async def test_the_end_of_the_terminal_stops_services_like_ctrl_c(
    tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "broker.log"
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", HOST, str(log), BROKER)

    async def runs() -> bool:
        return log.exists() and "up" in log.read_text()

    try:
        await wait_until(runs, "the broker runs")
        host.send_signal(number)
        assert await host.wait() == 0
        assert log.read_text() == "up\nstopped\n"
    finally:
        if host.returncode is None:
            host.kill()
            await host.wait()


LISTED = """
import signal, sys
def stopped(*_):
    with open(sys.argv[1], "a") as file:
        file.write(sys.argv[2] + "\\n")
    sys.exit()
signal.signal(signal.SIGTERM, stopped)
print("up", flush=True)
signal.pause()
"""


async def test_the_broker_stops_while_a_controller_runs_and_zookeeper_stops_last(
    tmp_path: Path,
) -> None:
    runner = HostRunner((), has_zookeeper=False, report=lambda _: None)
    for name in ("zookeeper", "broker", "controller", "coordinator"):
        argv = [sys.executable, "-c", LISTED, str(tmp_path / "order"), name]
        runner._start(Child(name, argv, tmp_path / f"{name}.log"))

    async def run() -> bool:
        return all(child.tail() == "up" for child in runner.children.values())

    await wait_until(run, "all run")
    stop = asyncio.Event()
    stop.set()
    await runner.run(stop)
    order = (tmp_path / "order").read_text().split()
    assert order == ["coordinator", "broker", "controller", "zookeeper"]


@pytest.fixture(name="entered")
def _entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a host with a broker; the test's own umask and directory come back."""
    (tmp_path / "leadline.toml").touch()
    (tmp_path / "broker-1-public.pem").touch()
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


def test_a_host_runs_once_and_its_files_are_private(entered: Path) -> None:
    runner = HostRunner.enter(entered, lambda _: None)
    assert runner.kinds == ("broker",)
    with pytest.raises(HostProblem, match=f"process {os.getpid()} runs the host"):
        HostRunner.enter(entered, lambda _: None)
    assert stat.S_IMODE((entered / "host.lock").stat().st_mode) == 0o600
    assert runner._lock is not None
    runner._lock.release()


async def test_a_process_that_waits_for_its_next_start_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    runner = HostRunner((), has_zookeeper=False, report=said.append)
    runner._start(Child("broker", [sys.executable, "-c", ""], tmp_path / "broker.log"))
    runner._start(Child("controller", [sys.executable, "-c", ""], tmp_path / "controller.log"))
    stop = asyncio.Event()
    runner._restarts["broker"]._failures = 100
    monkeypatch.setattr(host_runner, "_FIRST_PAUSE_S", 0.01)
    watching = asyncio.create_task(runner._watch(stop))

    async def restarted() -> bool:
        return up(said, "controller") >= 3

    try:
        await wait_until(restarted, "the controller starts again")
        assert up(said, "broker") == 1
        assert any("broker ended with 0; it starts again in 30 s" in line for line in said)
    finally:
        stop.set()
        await watching
        await asyncio.gather(*(child.kill() for child in runner.children.values()))
