"""An fsync that does not end is noticed, and a process that was frozen does not take it for one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.runtime.replication.disk_watch import DiskWait, DiskWatch, ends_in_time
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_client.errors import StorageFailed
from tests.runtime_simulation.event_loop import SimulatedLoop
from tests.runtime_simulation.process import Process
from tests.support.services.zookeeper import until
from tests.unit.broker.test_runtime_flusher import LOGS, dirty, flushed_once

TIMEOUT_S = 30.0
BEGIN_S = 1000.0


class Watched:
    """A watch of two flushers in virtual time, and what it told of them."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(BEGIN_S)
        self.process = Process("broker")
        self.flushers = [
            GroupFlusher(on_durable=print, on_failed=print, on_group=lambda _: None)
            for _ in range(2)
        ]
        self.told: list[StorageFailed] = []
        self.timeout_s = TIMEOUT_S
        watch = DiskWatch(
            progresses=[flusher.progress for flusher in self.flushers],
            timeout_ms=lambda: int(self.timeout_s * 1000),
            on_hanging=self.told.append,
        )
        self.loop.in_process(self.process, watch.run())

    def begin(self, number: int) -> None:
        """Let a flusher begin another group."""
        self.flushers[number].flushing = asyncio.Event()

    def end(self, number: int) -> None:
        """Let a flusher end its group."""
        self.flushers[number].flushing = None

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until(self.loop.now_s + seconds)


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.loop.close()


@pytest.mark.parametrize("number", [0, 1])
def test_a_group_that_does_not_end_is_told_once(watched: Watched, number: int) -> None:
    watched.pass_s(100)
    watched.begin(number)
    watched.pass_s(TIMEOUT_S - 0.1)
    before = list(watched.told)
    watched.pass_s(TIMEOUT_S * 0.2)

    assert not before
    assert [str(error) for error in watched.told] == ["the disk has not answered within 30 s"]

    watched.pass_s(10 * TIMEOUT_S)
    assert len(watched.told) == 1


def test_groups_that_end_are_never_told(watched: Watched) -> None:
    for _ in range(20):
        watched.begin(0)
        watched.pass_s(TIMEOUT_S * 0.9)
    watched.end(0)
    for _ in range(20):
        watched.begin(1)
        watched.pass_s(TIMEOUT_S * 0.9)
        watched.end(1)
        watched.pass_s(TIMEOUT_S * 0.9)

    assert watched.told == []


def test_a_pause_of_the_process_is_not_the_disks(watched: Watched) -> None:
    watched.begin(0)
    watched.pass_s(TIMEOUT_S / 2)
    watched.process.frozen = True
    watched.pass_s(10 * TIMEOUT_S)
    watched.loop.resume(watched.process)
    watched.pass_s(TIMEOUT_S / 4)

    assert watched.told == []

    watched.pass_s(TIMEOUT_S / 2)
    assert len(watched.told) == 1


def test_the_watch_goes_on_while_its_flushers_have_nothing_to_do(watched: Watched) -> None:
    watched.pass_s(100 * TIMEOUT_S)
    tasks = [one for one in asyncio.all_tasks(watched.loop) if not one.done()]

    assert watched.told == []
    assert len(tasks) == 1


@pytest.mark.parametrize(("before_s", "after_s"), [(TIMEOUT_S, 600.0), (3600.0, 100.0)])
def test_a_changed_timeout_counts_at_once(
    watched: Watched, before_s: float, after_s: float
) -> None:
    watched.timeout_s = before_s
    watched.pass_s(2 * TIMEOUT_S)
    watched.begin(0)
    watched.pass_s(TIMEOUT_S * 0.9)
    watched.timeout_s = after_s
    watched.pass_s(after_s - TIMEOUT_S)

    assert watched.told == []

    watched.pass_s(TIMEOUT_S)
    assert len(watched.told) == 1


async def test_a_large_group_may_take_long_while_its_fsyncs_end(tmp_path: Path) -> None:
    partitions, fsyncs = flushed_once(tmp_path)
    flusher = GroupFlusher(on_durable=lambda _: None, on_failed=print, on_group=lambda _: None)
    watched = DiskWait(flusher.progress)
    running = asyncio.create_task(flusher.run())
    for partition in partitions:
        flusher.mark(partition)
    await fsyncs.started_some(LOGS)

    waited = []
    for one in fsyncs.started[1:]:
        one.wait()
        waited.append(watched.step(1_000))
    waited += [watched.step(1_000) for _ in range(2)]

    assert waited == [0] * (LOGS - 1) + [1_000, 2_000]
    fsyncs.started[0].wait()
    await flusher.settled()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_fsync_of_a_thread_counts_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, may_end, flush = dirty(tmp_path), threading.Semaphore(0), PartitionLog.flush

    def flush_later(log: PartitionLog) -> int:
        may_end.acquire()
        return flush(log)

    monkeypatch.setattr(PartitionLog, "flush", flush_later)
    flusher = GroupFlusher(on_durable=lambda _: None, on_failed=print, on_group=lambda _: None)
    running = asyncio.create_task(flusher.run())
    for partition in partitions:
        flusher.mark(partition)

    def have_ended(count: int) -> bool:
        return flusher.ended == count

    for number in range(1, LOGS):
        may_end.release()
        await until(partial(have_ended, number), "another one has ended")
    assert flusher.flushing is not None
    may_end.release()
    await flusher.settled()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def wait_for(hanging: asyncio.Future[None]) -> None:
    """Work that ends with a future."""
    await hanging


@pytest.mark.parametrize("every_s", [TIMEOUT_S * 0.5, TIMEOUT_S * 0.9])
def test_work_may_take_long_while_something_ends(watched: Watched, every_s: float) -> None:
    loop, progress = watched.loop, [0]
    hanging = loop.create_future()
    outcome = loop.in_process(
        watched.process,
        ends_in_time(wait_for(hanging), lambda: progress[0], lambda: int(TIMEOUT_S * 1000)),
    )
    for _ in range(10):
        watched.pass_s(every_s)
        progress[0] += 1
    assert not outcome.done()

    hanging.set_result(None)
    watched.pass_s(1)
    assert outcome.result()


def test_work_is_cancelled_without_progress_but_a_pause_of_the_process_is_no_reason(
    watched: Watched,
) -> None:
    loop = watched.loop
    hanging = loop.create_future()
    outcome = loop.in_process(
        watched.process, ends_in_time(wait_for(hanging), lambda: 0, lambda: int(TIMEOUT_S * 1000))
    )
    watched.pass_s(TIMEOUT_S / 2)
    watched.process.frozen = True
    watched.pass_s(10 * TIMEOUT_S)
    loop.resume(watched.process)
    watched.pass_s(TIMEOUT_S / 4)
    assert not outcome.done()

    watched.pass_s(TIMEOUT_S / 2)
    assert not outcome.result()
    assert hanging.cancelled()
