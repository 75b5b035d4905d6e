"""Fsyncs by the kernel: their ends are told on the event loop, and each can be waited for."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline_broker.adapters.log.kernel_fsyncs import (
    MOST_AT_ONCE,
    KernelFsyncs,
    StartedFsync,
    error_of,
    kernel_fsyncs,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux does that")

Outcomes = list[OSError | None]


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(number, b"content")
    yield number
    os.close(number)


@pytest.fixture
def fsyncs() -> KernelFsyncs:
    found = kernel_fsyncs()
    if found is None:
        pytest.skip("this kernel does not let us")
    return found


async def test_ends_are_told_on_the_loop(fsyncs: KernelFsyncs, fd: int) -> None:
    outcomes: asyncio.Queue[OSError | None] = asyncio.Queue()
    for _ in range(3):
        assert fsyncs.start(fd, outcomes.put_nowait) is not None
    assert outcomes.empty()
    async with asyncio.timeout(30):
        assert [await outcomes.get() for _ in range(3)] == [None] * 3


async def test_the_loop_s_own_thread_waits_without_the_loop(fsyncs: KernelFsyncs, fd: int) -> None:
    outcomes: Outcomes = []
    started = fsyncs.start(fd, outcomes.append)
    assert started is not None
    started.wait()
    assert outcomes == [None]
    started.wait()
    await asyncio.sleep(0)
    assert outcomes == [None]


async def test_another_thread_waits_for_the_loop(fsyncs: KernelFsyncs, fd: int) -> None:
    outcomes: Outcomes = []
    started = fsyncs.start(fd, outcomes.append)
    assert started is not None
    await asyncio.wait_for(asyncio.to_thread(started.wait), 30)
    assert outcomes == [None]


async def test_it_takes_no_more_than_a_number_and_then_more_again(
    fsyncs: KernelFsyncs, fd: int
) -> None:
    outcomes: Outcomes = []
    started = [fsyncs.start(fd, outcomes.append) for _ in range(MOST_AT_ONCE + 1)]
    taken: list[StartedFsync] = [one for one in started if one is not None]
    assert (len(taken), started[-1]) == (MOST_AT_ONCE, None)
    for one in taken:
        one.wait()
    assert fsyncs.start(fd, outcomes.append) is not None


async def test_what_the_kernel_cannot_fsync_is_left_to_others(fsyncs: KernelFsyncs) -> None:
    outcomes: Outcomes = []
    read, write = os.pipe()
    try:
        assert fsyncs.start(write, outcomes.append) is None
        assert fsyncs.start(10**6, outcomes.append) is None
    finally:
        os.close(read)
        os.close(write)
    assert outcomes == []


def test_there_are_none_without_an_event_loop(fsyncs: KernelFsyncs, fd: int) -> None:
    assert fsyncs.start(fd, print) is None


async def test_there_are_none_in_other_threads(fsyncs: KernelFsyncs, fd: int) -> None:
    outcomes: Outcomes = []
    started = fsyncs.start(fd, outcomes.append)
    assert started is not None
    assert await asyncio.to_thread(fsyncs.start, fd, outcomes.append) is None
    started.wait()


def test_an_error_number_becomes_an_error() -> None:
    """A disk that really fails is in `tests/e2e`, S18."""
    assert error_of(0) is None
    error = error_of((1 << 64) - errno.EIO)
    assert error is not None
    assert error.errno == errno.EIO
