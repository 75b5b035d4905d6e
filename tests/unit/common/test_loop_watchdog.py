"""The watchdog of the event loop: what counts as a standstill, and what follows from it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from leadline_common import loop_watchdog
from leadline_common.loop_watchdog import LoopLag, LoopWatchdog, Standstill
from tests.support.services.zookeeper import until


def test_a_loop_that_does_not_run_stands_still_until_it_does() -> None:
    standstill = Standstill(poll_s=0.5)
    looks = [standstill.look(now, has_run=False) for now in (100.0, 100.5, 101.0, 101.5)]
    assert looks == [0.0, 0.5, 1.0, 1.5]
    assert standstill.look(102.0, has_run=True) == 0.0
    assert standstill.look(102.5, has_run=False) == 0.5


def test_the_time_of_a_suspended_process_is_not_counted() -> None:
    standstill = Standstill(poll_s=0.5)
    standstill.look(100.0, has_run=False)
    assert standstill.look(100.0 + 3600, has_run=False) == 1.0


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans())))
def test_no_standstill_is_longer_than_the_looks_since_the_loop_ran(
    looks: list[tuple[float, bool]],
) -> None:
    standstill, now_s, since = Standstill(poll_s=1.0), 0.0, 0
    for pause_s, has_run in looks:
        now_s += pause_s
        since = 0 if has_run else since + 1
        assert 0 <= standstill.look(now_s, has_run=has_run) <= 2.0 * since


def test_the_longest_delay_is_kept_and_the_most_work_in_one() -> None:
    lag = LoopLag()
    for seconds, busy in ((0.1, 0.1), (3.0, 0.05), (0.2, 0.01)):
        lag.observe(seconds, busy)
    assert (lag.latest_s, lag.longest_s, lag.longest_busy_s) == (0.2, 3.0, 0.1)


@pytest.mark.parametrize("works", [True, False])
async def test_a_loop_that_only_waits_is_not_busy(
    monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    lag, posted = LoopLag(), threading.Event()
    monkeypatch.setattr(loop_watchdog, "LAG", lag)
    watchdog = LoopWatchdog(60, lambda: None)
    assert watchdog._post()
    until_s = time.thread_time() + 0.2
    while works and time.thread_time() < until_s:
        pass
    while not works and not posted.wait(0.2):
        posted.set()
    await asyncio.sleep(0)
    await until(lambda: lag.longest_s > 0, "the delay is noted")
    assert (lag.longest_busy_s >= 0.2) == works
    assert lag.longest_s >= 0.2


async def test_a_blocked_loop_is_noticed_from_outside() -> None:
    given_up = threading.Event()
    watchdog = LoopWatchdog(0.2, given_up.set)
    watchdog.start()
    assert given_up.wait(20), "the loop runs no callback meanwhile"


class _Full(logging.Handler):
    """Blocks as a file on a disk that hangs does, or a full pipe; and others wait for its lock."""

    def __init__(self, blocked: Callable[[], object]) -> None:
        super().__init__()
        self._blocked = blocked

    def emit(self, _: logging.LogRecord) -> None:
        self._blocked()


async def test_a_loop_that_is_blocked_while_it_logs_is_given_up_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = structlog.wrap_logger(
        logging.getLogger("watchdog"),
        processors=[structlog.processors.JSONRenderer()],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    monkeypatch.setattr(loop_watchdog, "logger", log)
    given_up, was_given_up = threading.Event(), list[bool]()
    handler = _Full(lambda: was_given_up.append(given_up.wait(20)))
    watchdog = LoopWatchdog(0.2, given_up.set)
    logging.getLogger().addHandler(handler)
    try:
        watchdog.start()
        logging.getLogger().error("a line")
    finally:
        logging.getLogger().removeHandler(handler)
        watchdog.stop()
        await asyncio.to_thread(watchdog._thread.join)
    assert was_given_up[0]


async def test_a_loop_that_runs_is_left_alone_and_so_is_a_stopped_watchdog() -> None:
    called = threading.Event()
    watchdog = LoopWatchdog(60, called.set)
    watchdog.start()
    watchdog.stop()
    await until(lambda: not watchdog._thread.is_alive(), "its thread ends")
    assert not called.is_set()


def test_a_watchdog_ends_with_its_loop() -> None:
    async def begin() -> LoopWatchdog:
        watchdog = LoopWatchdog(1, lambda: None)
        watchdog.start()
        return watchdog

    watchdog = asyncio.run(begin())
    watchdog._thread.join(20)
    assert not watchdog._thread.is_alive()
