"""Group commit by real logs: every log of a group is fsynced, and a failure stays with its log."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from leadline_broker.adapters.log.errors import DiskFull, LogFailed, NoDescriptor
from leadline_broker.adapters.log.kernel_fsyncs import Fsyncs, OnDone, kernel_fsyncs
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import StorageFailed
from tests.support.services.zookeeper import until
from tests.unit.broker import log_support
from tests.unit.broker.test_runtime_fetch_sessions import (
    SettableClock,
    all_sessions,
    led,
    opening,
)

LOGS = 10
"""More than there are threads."""
DEADLINE_S = 10


class Outcomes:
    """What a flusher told of the logs that it was given."""

    def __init__(self, partitions: list[Partition]) -> None:
        self.durable: list[Partition] = []
        self.failures: list[StorageFailed] = []
        self._partitions = partitions

    async def flush(self) -> None:
        """Fsync all in one group."""
        flusher = GroupFlusher(
            on_durable=self.durable.append,
            on_failed=self.failures.append,
            on_group=lambda _: None,
        )
        running = asyncio.create_task(flusher.run())
        for partition in self._partitions:
            flusher.mark(partition)
        await flusher.settled()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def flushed_once(root: Path) -> tuple[list[Partition], log_support.LateFsyncs]:
    """Return partitions whose logs are on the disk except for one record; tests end the fsyncs."""
    fsyncs = log_support.LateFsyncs()
    partitions = dirty(root, fsyncs)
    for partition in partitions:
        partition.log.flush()
        partition.log.append(log_support.batch(1))
    return partitions, fsyncs


def dirty(root: Path, fsyncs: Fsyncs | None = None) -> list[Partition]:
    """Return partitions whose logs have a record that is not fsynced."""
    partitions = [led(root, number, fsyncs=fsyncs) for number in range(LOGS)]
    for partition in partitions:
        partition.log.append(log_support.batch(0))
        assert partition.log.durable_end_offset == 0
    return partitions


async def test_every_log_of_a_group_is_fsynced(tmp_path: Path) -> None:
    partitions = dirty(tmp_path)
    outcomes = Outcomes(partitions)

    await outcomes.flush()

    assert {one.partition for one in outcomes.durable} == set(range(LOGS))
    assert [one.log.durable_end_offset for one in partitions] == [1] * LOGS
    assert outcomes.failures == []


async def test_records_alone_need_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, fsyncs = flushed_once(tmp_path)

    def in_a_thread(_: PartitionLog) -> int:
        raise AssertionError("a thread fsyncs")

    monkeypatch.setattr(PartitionLog, "flush", in_a_thread)
    outcomes = Outcomes(partitions)
    flushing = asyncio.create_task(outcomes.flush())
    await fsyncs.started_some(LOGS)
    for one in fsyncs.started[1:]:
        one.wait()
    await asyncio.sleep(0)
    assert (outcomes.durable, flushing.done()) == ([], False), "a group ends as a whole"
    fsyncs.started[0].wait()
    await flushing

    assert {one.partition for one in outcomes.durable} == set(range(LOGS))
    assert [one.log.durable_end_offset for one in partitions] == [2] * LOGS


@pytest.mark.parametrize("has_followers", [True, False])
async def test_followers_that_wait_are_sent_records_before_their_fsync_begins(
    tmp_path: Path, has_followers: bool
) -> None:
    """The kernel keeps the loop while it begins one, so followers could begin theirs later.

    Without followers it begins at once.
    """
    [partition, *_], fsyncs = flushed_once(tmp_path)
    if has_followers:
        await all_sessions({partition.key: partition}, SettableClock()).fetch(opening(1, 0))
    begun_when_sent: list[int] = []
    appended = asyncio.Event()

    async def follower() -> None:
        await appended.wait()
        begun_when_sent.append(len(fsyncs.started))

    flusher = GroupFlusher(
        on_durable=lambda _: None, on_failed=lambda _: None, on_group=lambda _: None
    )
    running, sending = asyncio.create_task(flusher.run()), asyncio.create_task(follower())
    await asyncio.sleep(0)
    flusher.mark(partition)
    appended.set()
    await fsyncs.started_some(1)
    fsyncs.started[0].wait()
    await flusher.settled()
    await sending
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert begun_when_sent == [0 if has_followers else 1]


async def test_whoever_stops_waiting_for_an_fsync_lets_others_wait(tmp_path: Path) -> None:
    [partition, *_], fsyncs = flushed_once(tmp_path)
    flusher = GroupFlusher(
        on_durable=lambda _: None, on_failed=lambda _: None, on_group=lambda _: None
    )
    flusher.mark(partition)
    before_it_begins = [asyncio.create_task(flusher.settled()) for _ in range(2)]
    await asyncio.sleep(0)
    running = asyncio.create_task(flusher.run())
    await fsyncs.started_some(1)
    while_it_runs = [asyncio.create_task(flusher.settled()) for _ in range(2)]
    await asyncio.sleep(0)
    stopped, others = zip(before_it_begins, while_it_runs, strict=True)
    for one in stopped:
        one.cancel()
    await asyncio.wait(stopped)

    assert [one.done() for one in others] == [False, False]
    assert partition.log.durable_end_offset == 1
    fsyncs.started[0].wait()
    await asyncio.gather(*others)
    assert partition.log.durable_end_offset == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_failed_fsync_without_a_thread_is_reported_too(tmp_path: Path) -> None:
    partitions, fsyncs = flushed_once(tmp_path)
    outcomes = Outcomes(partitions)
    flushing = asyncio.create_task(outcomes.flush())
    await fsyncs.started_some(LOGS)
    fsyncs.started[3].end(OSError(errno.EIO, "broken"))
    for one in fsyncs.started:
        one.wait()
    await flushing

    assert {one.partition for one in outcomes.durable} == set(range(LOGS)) - {3}
    assert len(outcomes.failures) == 1
    assert partitions[3].log.durable_end_offset == 1


async def test_the_kernel_fsyncs_what_the_loop_gives_it(tmp_path: Path) -> None:
    fsyncs = kernel_fsyncs()
    partitions = dirty(tmp_path, fsyncs)
    for partition in partitions:
        partition.log.flush()
        partition.log.append(log_support.batch(1))
    outcomes = Outcomes(partitions)

    await outcomes.flush()

    assert {one.partition for one in outcomes.durable} == set(range(LOGS))
    assert [one.log.durable_end_offset for one in partitions] == [2] * LOGS


class ToldByTheLoop:
    """Implements `Fsyncs`: the ends are told on the event loop when it turns, as the kernel's."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.told = threading.Event()
        self.was_late = False
        self._on_done: OnDone

    def start(self, fd: int, on_done: OnDone) -> ToldByTheLoop:
        """Start the only one."""
        del fd
        self._on_done = on_done
        return self

    def tell(self) -> None:
        """Tell of its end."""
        self._on_done(None)
        self.told.set()

    def wait(self) -> None:
        """Wait in another thread than the loop's."""
        self.asked.set()
        self.was_late = not self.told.wait(DEADLINE_S)
        if self.was_late:
            raise TimeoutError


async def test_a_stop_does_not_keep_the_loop_from_telling_of_an_fsync(tmp_path: Path) -> None:
    """A thread of another flusher waits for it, as while a replica goes from one to the other."""
    fsyncs = ToldByTheLoop()
    partition = led(tmp_path, 0, fsyncs=fsyncs)
    partition.log.append(log_support.batch(0))
    partition.log.flush()
    partition.log.append(log_support.batch(1))
    flushers = [
        GroupFlusher(on_durable=print, on_failed=print, on_group=lambda _: None) for _ in range(2)
    ]
    running = [asyncio.create_task(flusher.run()) for flusher in flushers]
    for flusher in flushers:
        flusher.mark(partition)
    assert await asyncio.to_thread(fsyncs.asked.wait, DEADLINE_S)

    for task in running:
        task.cancel()
    asyncio.get_running_loop().call_later(0.1, fsyncs.tell)  # The fsync takes that long.
    await asyncio.gather(*running, return_exceptions=True)

    assert not fsyncs.was_late
    assert partition.log.flush() == 2


async def test_it_has_its_threads_before_there_is_anything_to_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on threads that is reached later ended the broker at its first flush."""
    durable: list[Partition] = []
    flusher = GroupFlusher(on_durable=durable.append, on_failed=print, on_group=lambda _: None)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        running = asyncio.create_task(flusher.run())
        partition = led(tmp_path, 0)
        partition.log.append(log_support.batch(0))
        flusher.mark(partition)
        settled = asyncio.create_task(flusher.settled())
        await asyncio.wait((running, settled), return_when=asyncio.FIRST_COMPLETED)
        assert not running.done(), running.exception()
    assert (durable, partition.log.durable_end_offset) == ([partition], 1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_flushes_that_are_postponed_are_logged_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each log had a line in every fifth of a second for as long as a disk was full."""
    monkeypatch.setattr("leadline_broker.runtime.replication.flusher._RETRY_S", 0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: 1.0)
    partitions, refused, failures = dirty(tmp_path), 0, list[StorageFailed]()
    flusher = GroupFlusher(
        on_durable=lambda _: None, on_failed=failures.append, on_group=lambda _: None
    )

    def full(_: PartitionLog) -> int:
        nonlocal refused
        refused += 1
        raise DiskFull("no space left")

    monkeypatch.setattr(PartitionLog, "flush", full)
    for partition in partitions:
        flusher.mark(partition)
    with capture_logs() as lines:
        running = asyncio.create_task(flusher.run())
        await until(lambda: refused >= 3 * LOGS, "each was tried three times")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    [line] = [line for line in lines if line["event"] == "flush postponed"]
    assert (line["error"], line["more_before"]) == ("no space left", 0)
    assert not failures


async def test_what_was_rewritten_is_flushed_again_when_that_was_postponed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the log had been durable before, so that it was forgotten."""
    monkeypatch.setattr("leadline_broker.runtime.replication.flusher._RETRY_S", 0.0)
    partition = led(tmp_path, 0)
    sound = log_support.batch(0)
    partition.log.append(sound)
    partition.log.flush()
    durable, left = list[Partition](), [None] * 2
    real = PartitionLog.flush

    def flush(log: PartitionLog) -> int:
        if left:
            left.pop()
            raise NoDescriptor("too many open files")
        return real(log)

    assert not partition.log.has_unsynced
    [path] = partition.log.directory.glob("*.log")
    path.write_bytes(bytes(len(sound)))
    assert partition.log.batches.repair(sound) == 1
    assert partition.log.has_unsynced
    monkeypatch.setattr(PartitionLog, "flush", flush)
    flusher = GroupFlusher(on_durable=durable.append, on_failed=print, on_group=lambda _: None)
    running = asyncio.create_task(flusher.run())
    flusher.mark(partition)
    await until(lambda: durable == [partition], "it is flushed")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not partition.log.has_unsynced


async def test_a_failed_fsync_is_reported_and_makes_no_other_log_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = dirty(tmp_path)
    broken = partitions[3].log

    flush = PartitionLog.flush

    def failing(log: PartitionLog) -> int:
        if log is broken:
            raise LogFailed("the disk is gone")
        return flush(log)

    monkeypatch.setattr(PartitionLog, "flush", failing)
    monkeypatch.setattr(PartitionLog, "failed", property(lambda log: log is broken))
    outcomes = Outcomes(partitions)

    await outcomes.flush()

    assert {one.partition for one in outcomes.durable} == set(range(LOGS)) - {3}
    assert [str(failure) for failure in outcomes.failures] == ["the disk is gone"]
    assert broken.durable_end_offset == 0
