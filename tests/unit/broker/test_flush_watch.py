"""An fsync that does not end is noticed, and a process that was frozen does not take it for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from leadline_broker.runtime.replication.flush_watch import FlushWatch
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_client.errors import StorageFailed
from tests.runtime_simulation.event_loop import SimulatedLoop
from tests.runtime_simulation.process import Process

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
        watch = FlushWatch(
            flushers=self.flushers,
            timeout_ms=lambda: int(TIMEOUT_S * 1000),
            on_hanging=self.told.append,
        )
        self.loop.in_process(self.process, watch.run())

    def begin(self, number: int) -> None:
        """Let a flusher begin another group."""
        self.flushers[number].flushing = self.loop.create_future()

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
    assert [str(error) for error in watched.told] == ["the disk has not ended an fsync within 30 s"]

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
