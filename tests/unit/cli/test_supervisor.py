"""The supervisor looks after its children."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from leadline_cli import supervisor
from leadline_cli.cluster_file import ClusterFile, Service
from leadline_cli.cluster_layout import ClusterOptions, lay_out_cluster
from leadline_cli.processes import STOP_DEADLINE_S, Child, wait_for_end
from leadline_cli.restart_requests import (
    SUPERVISOR_LOCK,
    RestartProblem,
    RestartRequests,
    restart_broker,
)
from leadline_cli.supervisor import ClusterProblem, Supervisor
from leadline_client.file_lock import FileLock
from leadline_common.tcp_ports import LOOPBACK
from tests.support.services.cluster import wait_until

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked to stop", flush=True))
print("up", flush=True)
time.sleep(600)
"""


class MortalCluster(Supervisor):
    """A cluster of which every process ends as soon as it has begun."""

    def __init__(self, data_dir: Path) -> None:
        options = ClusterOptions(data_dir, brokers=1, controllers=1)
        super().__init__(options)
        self._layout = lay_out_cluster(options, None, self._ports)
        for service in (*self._layout.zookeeper_servers, *self._layout.services):
            child = Child(service.name, ["false"], data_dir / f"{service.name}.log")
            child.start()
            self.children[service.name] = child


class AnsweredByOthers(MortalCluster):
    """Its processes have ended, and another cluster answers at their addresses."""

    async def _start(self, deadline_s: float, report: Callable[[str], None]) -> list[str]:
        while any(child.running for child in self.children.values()):
            await wait_for_end(self.children.values(), asyncio.Event(), 1.0)
        return await self._until_ready(deadline_s, report)


class FailedStart(MortalCluster):
    """Its start waits for the end of its first process, and fails because of that."""

    async def _start(
        self,
        deadline_s: float,  # noqa: ARG002 - as overridden
        report: Callable[[str], None],  # noqa: ARG002 - as overridden
    ) -> list[str]:
        while all(child.running for child in self.children.values()):
            await wait_for_end(self.children.values(), asyncio.Event(), 1.0)
        self._check_children()
        return []


@pytest.mark.parametrize(("free", "full"), [(0, True), (1 << 40, False)])
async def test_a_full_disk_is_named_as_the_reason_of_a_failed_start(
    *, free: int, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes could not say so: their logs are on the same disk."""
    cluster = FailedStart(tmp_path)
    usage = SimpleNamespace(total=1 << 40, used=(1 << 40) - free, free=free)
    monkeypatch.setattr("leadline_cli.disk_space.shutil.disk_usage", lambda _: usage)
    with pytest.raises(ClusterProblem, match=" ended with 1 ") as failed:
        await cluster.start()
    await cluster.stop()
    assert "it has written nothing to" in str(failed.value)
    assert (f"the disk of {tmp_path} is full" in str(failed.value)) == full


async def lines_until_all_have_ended(cluster: MortalCluster) -> list[str]:
    """Watch a cluster whose processes end by themselves; return what is reported meanwhile."""
    stop, lines = asyncio.Event(), list[str]()

    def note(line: str) -> None:
        lines.append(line)
        if sum(" ended with 1" in one for one in lines) == len(cluster.children):
            stop.set()

    async with asyncio.timeout(30):
        await cluster.watch(stop, restart=False, report=note)
    await cluster.stop()
    return lines


@pytest.mark.parametrize(("free", "full"), [(0, True), (1 << 40, False)])
async def test_a_full_disk_is_named_when_a_process_ends(
    *, free: int, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper ends with 0 then, and has written nothing to its log, which is on that disk."""
    usage = SimpleNamespace(total=1 << 40, used=(1 << 40) - free, free=free)
    monkeypatch.setattr("leadline_cli.disk_space.shutil.disk_usage", lambda _: usage)
    lines = await lines_until_all_have_ended(MortalCluster(tmp_path))
    assert any(line.startswith(f"the disk of {tmp_path} is full") for line in lines) == full


def only_full(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk of this directory be full, and no other one."""
    directory.mkdir(parents=True)

    def usage(path: Path) -> SimpleNamespace:
        free = 0 if path == directory else 1 << 40
        return SimpleNamespace(total=1 << 40, used=(1 << 40) - free, free=free)

    monkeypatch.setattr("leadline_cli.disk_space.shutil.disk_usage", usage)


@pytest.mark.parametrize("name", ["zookeeper-1", "broker-1"])
async def test_a_full_disk_of_one_process_is_named_when_that_process_ends(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper's data had a disk of its own, and only that was full: nothing said so."""
    only_full(tmp_path / name, monkeypatch)
    lines = await lines_until_all_have_ended(MortalCluster(tmp_path))
    named = [line for line in lines if line.startswith("the disk of ")]
    assert len(named) == 1
    assert named[0].startswith(f"the disk of {tmp_path / name} is full")
    before = lines[lines.index(named[0]) - 1]
    assert before.startswith(f"{name} ended with 1")


async def test_a_full_disk_of_one_process_is_named_as_the_reason_of_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_full(tmp_path / "zookeeper-1", monkeypatch)
    cluster = FailedStart(tmp_path)
    with pytest.raises(ClusterProblem, match=" ended with 1 ") as failed:
        await cluster.start()
    await cluster.stop()
    assert f"the disk of {tmp_path / 'zookeeper-1'} is full" in str(failed.value)


async def test_a_child_that_ends_while_others_are_restarted_is_restarted_too(
    tmp_path: Path,
) -> None:
    cluster, stop = MortalCluster(tmp_path), asyncio.Event()
    ends: list[str] = []

    def note(line: str) -> None:
        if " ended with 1" in line:
            ends.append(line.split(maxsplit=1)[0])
        if ends.count("broker-1") == 2:
            stop.set()

    async with asyncio.timeout(30):
        await cluster.watch(stop, restart=True, report=note)
    assert ends.count("broker-1") == 2
    await cluster.stop()


@pytest.mark.parametrize("cause", ["it has ended", "somebody asks for it"])
async def test_a_process_that_cannot_be_started_again_ends_no_other(
    tmp_path: Path, cause: str
) -> None:
    """The system may lack memory or processes for a moment, and the disk room for a log file."""
    cluster, stop = MortalCluster(tmp_path), asyncio.Event()
    child = cluster.children["broker-1"]
    program, lines = tmp_path / "program", list[str]()
    child.argv = [str(program)]
    if cause == "somebody asks for it":
        RestartRequests(tmp_path).add(child.name)

    def note(line: str) -> None:
        lines.append(line)
        if line.startswith("broker-1 was not started: ") and not program.exists():
            program.write_text("#!/bin/sh\n")
            program.chmod(0o700)
        if line.startswith("broker-1 was restarted"):
            stop.set()

    async with asyncio.timeout(30):
        await cluster.watch(stop, restart=cause == "it has ended", report=note)
    assert any(line.startswith("broker-1 was not started: ") for line in lines)
    assert RestartRequests(tmp_path).pending() == []
    await cluster.stop()


async def test_an_end_is_known_while_another_process_is_being_stopped(tmp_path: Path) -> None:
    """A broker that is restarted hands over its partitions first, which may take seconds."""
    cluster, stop = MortalCluster(tmp_path), asyncio.Event()
    stopping, other = cluster.children["broker-1"], cluster.children["controller-1"]
    for child in (stopping, other):
        await child.stop()
        child.argv = [sys.executable, "-c", DEAF]
        child.start()
    ends: list[str] = []

    def note(line: str) -> None:
        if line.startswith(f"{other.name} ended with -9"):
            ends.append(line)
            stopping.signal(signal.SIGKILL)
            stop.set()

    async def run() -> bool:
        return bool(stopping.tail() and other.tail())

    async def asked() -> bool:
        return "asked to stop" in stopping.tail()

    await wait_until(run, "both run")
    RestartRequests(tmp_path).add(stopping.name)
    watching = asyncio.create_task(cluster.watch(stop, restart=False, report=note))
    await wait_until(asked, "the request is taken")
    other.signal(signal.SIGKILL)

    async with asyncio.timeout(30):
        await watching
    assert ends
    await cluster.stop()


async def test_a_request_that_cannot_be_removed_is_carried_out_once(tmp_path: Path) -> None:
    """Root has asked for it, and `leadline up` is another user's."""
    cluster, stop = MortalCluster(tmp_path), asyncio.Event()
    requests, lines = RestartRequests(tmp_path), list[str]()
    (tmp_path / "restart-requests" / "broker-1").mkdir(parents=True)

    def note(line: str) -> None:
        lines.append(line)
        if line.startswith("the request to restart broker-1 cannot be removed"):
            requests.add("controller-1")
        if line.startswith("controller-1 was restarted"):
            stop.set()

    async with asyncio.timeout(30):
        await cluster.watch(stop, restart=False, report=note)
    assert requests.pending() == ["broker-1"]
    assert len([line for line in lines if line.startswith("broker-1 was restarted")]) == 1
    await cluster.stop()


def test_a_request_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "restart-requests").write_text("")
    row = Service(1, "http://127.0.0.1:1", 1, ())
    ClusterFile("id", "127.0.0.1:1", (), (row,)).write(tmp_path)
    with (
        FileLock.acquire(tmp_path / SUPERVISOR_LOCK),
        pytest.raises(RestartProblem, match="cannot ask"),
    ):
        restart_broker(tmp_path, 1)


@pytest.mark.parametrize("place", ["logs", "restart-requests/broker-1/below"])
async def test_what_prevents_the_start_is_a_reason(tmp_path: Path, place: str) -> None:
    """The disk may be full, or a file another user's."""
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("")
    with pytest.raises(ClusterProblem, match=f"cannot start .*{place.removesuffix('/below')}"):
        async with Supervisor(ClusterOptions(tmp_path)):
            pass


async def test_a_stopped_cluster_gives_its_ports_up(tmp_path: Path) -> None:
    cluster = MortalCluster(tmp_path)
    ports = [urlsplit(one.url).port for one in cluster.layout.services]
    await cluster.stop()
    for port in ports:
        with socket.socket() as somebody_else:
            somebody_else.bind((LOOPBACK, port))


async def test_a_directory_that_is_of_no_use_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ClusterProblem, match=f"cannot use {place} .*--data-dir"):
            async with Supervisor(ClusterOptions(place)):
                pass


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cluster_id": 1'])
async def test_a_damaged_cluster_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ClusterProblem, match=r"cluster\.json cannot be read"):
        async with Supervisor(ClusterOptions(tmp_path)):
            pass


async def test_a_cluster_that_is_being_stopped_can_be_ended_at_once(tmp_path: Path) -> None:
    cluster = MortalCluster(tmp_path)
    deaf = Child("broker-1", [sys.executable, "-c", DEAF], tmp_path / "deaf.log")
    await cluster.children["broker-1"].kill()
    cluster.children["broker-1"] = deaf
    deaf.start()

    async def heard() -> bool:
        return bool(deaf.tail())

    await wait_until(heard, "the child runs")
    async with asyncio.timeout(STOP_DEADLINE_S - 1):
        stopping = asyncio.create_task(cluster.stop())
        await asyncio.sleep(0)
        cluster.kill()
        await stopping
    assert deaf.exit_code == -signal.SIGKILL


async def test_a_cluster_of_which_only_others_answer_has_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(supervisor, "what_is_missing", nothing)
    cluster = AnsweredByOthers(tmp_path)
    with pytest.raises(ClusterProblem, match="zookeeper-1 ended with 1"):
        await cluster.start()
    await cluster.stop()
