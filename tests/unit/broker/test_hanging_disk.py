"""A broker whose disk does not answer leaves the cluster, and does not wait for the disk."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from leadline_broker.adapters.disk import DiskLogs
from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.state import Addresses
from leadline_broker.runtime.broker import Broker, OpenLogs
from leadline_client.errors import BrokerFenced, LeadershipLost, StorageFailed
from leadline_common.clock import SystemClock
from leadline_common.metrics import Metrics
from leadline_common.settings import BrokerSettings
from tests.support.services.cluster import wait_until
from tests.unit.broker.log_support import batch as stored_batch
from tests.unit.broker.small_cluster import (
    CLUSTER,
    TOPIC,
    NodeStore,
    SmallCluster,
    Wire,
    batch,
    three,
)

DEADLINE_S = 20
SLOW_S = 0.4
"""How long a slow disk needs to close one log: a part of the time that an fsync may take here."""


def is_of_broker_1(fd: int) -> bool:
    """Return whether an open file is of the first broker's log directory."""
    return "/1/" in str(Path(f"/proc/self/fd/{fd}").readlink())


class Hanging:
    """Lets the fsyncs of broker 1 hang, in threads as on a disk."""

    def __init__(self) -> None:
        self.waiting = 0
        self._real = os.fdatasync
        self._hangs = False
        self._goes_on = threading.Event()

    def fdatasync(self, fd: int) -> None:
        """Wait for as long as the disk hangs."""
        if self._hangs and is_of_broker_1(fd):
            self.waiting += 1
            self._goes_on.wait(DEADLINE_S * 3)
        self._real(fd)

    def hang(self) -> None:
        """Answer nothing from now on."""
        self._hangs = True

    def go_on(self) -> None:
        """Answer everything."""
        self._hangs = False
        self._goes_on.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging()
    monkeypatch.setattr(os, "fdatasync", hanging.fdatasync)
    yield hanging
    hanging.go_on()


@pytest.fixture
async def cluster(tmp_path: Path, disk: Hanging) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path, log_flush_timeout_ms=1_000) as running:
        yield running
        disk.go_on()


async def test_it_fails_and_leaves_before_the_disk_goes_on(
    cluster: SmallCluster, disk: Hanging
) -> None:
    leader = cluster.brokers[1]
    disk.hang()

    with pytest.raises(LeadershipLost):
        await cluster.produce(1, "v")
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StorageFailed, match="has not answered"):
            await leader.failed()
        has_ended = await leader.close()

    assert disk.waiting
    assert not has_ended
    assert 1 not in cluster.nodes.live
    with pytest.raises(BrokerFenced):
        await cluster.produce(1, "w")


async def test_a_lower_timeout_counts_at_once(tmp_path: Path, disk: Hanging) -> None:
    async with await three(tmp_path) as cluster:
        disk.hang()
        producing = asyncio.create_task(cluster.produce(1, "v"))
        cluster.nodes.configure(CLUSTER, log_flush_timeout_ms=1_000)

        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(StorageFailed, match="within 1 s"):
                await cluster.brokers[1].failed()
        with pytest.raises(LeadershipLost):
            await producing
        disk.go_on()


async def test_it_fails_too_if_only_uploads_are_staged(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, goes_on = cluster.brokers[1], threading.Event()

    def hanging(*_: object) -> None:
        goes_on.wait(DEADLINE_S * 3)

    monkeypatch.setattr(leader.engine.staging.store, "write", hanging)
    staging = asyncio.create_task(leader.engine.staging.stage(TOPIC, 0, batch("v")))
    try:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(StorageFailed, match="has not answered"):
                await leader.failed()
            assert not await leader.close()
        assert 1 not in cluster.nodes.live
    finally:
        goes_on.set()
        await asyncio.gather(staging, return_exceptions=True)


async def test_a_stop_does_not_wait_for_it_for_ever(cluster: SmallCluster, disk: Hanging) -> None:
    disk.hang()
    producing = asyncio.create_task(cluster.produce(1, "v"))

    async def hangs() -> bool:
        return disk.waiting > 0

    await wait_until(hangs, "an fsync hangs")
    async with asyncio.timeout(DEADLINE_S):
        has_ended = await cluster.brokers[1].close()

    assert not has_ended
    assert 1 not in cluster.nodes.live
    with pytest.raises(LeadershipLost):
        await producing


async def test_one_that_has_failed_leaves_before_it_closes_its_logs(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, registered = cluster.brokers[1], list[bool]()
    close = leader.engine.logs.close

    def closing(incarnation: int) -> bool:
        registered.append(1 in cluster.nodes.live)
        return close(incarnation)

    def failing(fd: int) -> None:
        if is_of_broker_1(fd):
            raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(leader.engine.logs, "close", closing)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", failing)
        with pytest.raises(LeadershipLost):
            await cluster.produce(1, "v")
        with pytest.raises(StorageFailed):
            await leader.failed()
        assert await leader.close()

    assert registered == [False]


async def test_a_stop_ends_everything_otherwise(cluster: SmallCluster) -> None:
    await cluster.produce(1, "v")

    assert await cluster.brokers[1].close()
    assert 1 not in cluster.nodes.live


async def test_a_stop_waits_for_a_slow_disk_that_closes_one_log_after_the_other(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = range(5)
    for number in partitions:
        cluster.publish(1, 0, (1, 2, 3), partition=number)
    await cluster.grant(1, 2, 3, partitions=partitions)
    broker = cluster.brokers[1]
    for number in partitions:
        await broker.engine.serving.produce(
            TOPIC, number, batch("v"), acks="all", timeout_ms=DEADLINE_S * 1_000
        )
    close = PartitionLog.close

    def slowly(log: PartitionLog) -> None:
        threading.Event().wait(SLOW_S)
        close(log)

    monkeypatch.setattr(PartitionLog, "close", slowly)
    assert await broker.close()
    assert broker.engine.logs.closed == len(partitions)


def broker_1(settings: BrokerSettings, cluster: SmallCluster, open_logs: OpenLogs) -> Broker:
    """Return a broker that is not started."""
    return Broker(
        settings,
        store=NodeStore(1, cluster.nodes),
        peers=Wire(cluster, 1),
        open_logs=open_logs,
        clock=SystemClock(),
        metrics=Metrics(process=False),
        random=Random(1),
    )


def killed(root: Path, *, logs: int) -> None:
    """Leave a log directory whose logs have to be recovered."""
    directory = LogDirectory(root, cluster_id="cluster", broker_id=1)
    for number in range(logs):
        log = directory.open(TOPIC, "T", number)
        log.append(stored_batch(0))
        log.flush()
    directory.release()


async def test_a_stop_ends_a_recovery_after_the_segments_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, recovered = 40, list[int]()
    killed(tmp_path / "1", logs=logs)
    begun, goes_on, real = threading.Event(), threading.Event(), os.posix_fadvise

    def slowly(fd: int, offset: int, length: int, advice: int) -> None:
        begun.set()
        goes_on.wait(DEADLINE_S * 3)
        recovered.append(fd)
        real(fd, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", slowly)
    settings = BrokerSettings(broker_id=1, log_dir=str(tmp_path / "1"))
    broker = broker_1(settings, SmallCluster(tmp_path), partial(DiskLogs, settings))
    starting = asyncio.create_task(broker.start(Addresses("http://b/1", "https://b/1")))
    await asyncio.to_thread(begun.wait)
    starting.cancel()
    closing = asyncio.create_task(broker.close())
    await asyncio.sleep(0)
    goes_on.set()
    async with asyncio.timeout(DEADLINE_S):
        assert await closing

    assert 0 < len(recovered) < logs
    again = DiskLogs(settings, "cluster")
    assert [log.log_end_offset for *_, log, _ in again.stored()] == [1] * logs
    again.close(1)


def test_each_segment_of_a_recovery_is_progress(tmp_path: Path) -> None:
    killed(tmp_path, logs=5)
    settings, steps = BrokerSettings(broker_id=1, log_dir=str(tmp_path)), list[int]()
    logs = DiskLogs(settings, "cluster", lambda: steps.append(1))
    opened = len(steps)

    assert opened >= 5
    logs.close(1)
    assert len(steps) == opened


async def test_a_stop_does_not_wait_for_ever_for_logs_that_cannot_be_opened(
    tmp_path: Path,
) -> None:
    settings = BrokerSettings(broker_id=1, log_dir=str(tmp_path / "1"), log_flush_timeout_ms=1_000)
    begun, goes_on = threading.Event(), threading.Event()

    def open_logs(cluster_id: str, on_segment: Callable[[], None]) -> DiskLogs:
        begun.set()
        goes_on.wait(DEADLINE_S * 3)
        return DiskLogs(settings, cluster_id, on_segment)

    broker = broker_1(settings, SmallCluster(tmp_path), open_logs)
    starting = asyncio.create_task(broker.start(Addresses("http://b/1", "https://b/1")))
    try:
        await asyncio.to_thread(begun.wait)
        starting.cancel()
        async with asyncio.timeout(DEADLINE_S):
            assert not await broker.close()
    finally:
        goes_on.set()


PROGRAM = """
import asyncio, os, socket, sys, threading
from leadline_common.service_process import exit_at_once

async def main():
    threading.Thread(target=threading.Event().wait).start()
    print("text before the end")
    exit_at_once(3)

asyncio.run(main())
"""


def test_a_process_ends_although_a_thread_of_it_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, timeout=DEADLINE_S, check=False
    )

    assert (done.returncode, done.stdout) == (3, b"text before the end\n")


CONNECTED = """
import os, socket, sys
from leadline_common import service_process

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
os._exit = lambda status: None  # as if a thread kept the process
service_process.exit_at_once(0)
print("over", flush=True)
sys.stdin.read()
"""


def test_its_connections_end_although_the_kernel_keeps_the_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONNECTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
            assert process.stdout.readline() == "over\n"
            assert connection.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        process.communicate()
