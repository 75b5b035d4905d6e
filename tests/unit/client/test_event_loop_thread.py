"""An event loop on a thread of its own, for callers without one."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from types import FrameType
from typing import Any, TypeVar

import pytest

from leadline_client.errors import InvalidRequest
from leadline_client.event_loop_thread import EventLoopThread

T = TypeVar("T")


class Work:
    """Something that goes on until it is ended."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.ended.set()


class Interrupted(Exception):
    """What a signal's handler raises, as Ctrl-C does."""


def test_work_ends_when_its_caller_is_interrupted() -> None:
    """Otherwise a poll would continue after Ctrl-C, and take records that nobody gets."""
    work = Work()

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    def press() -> None:
        work.begun.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = EventLoopThread("test")
    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        with pytest.raises(Interrupted):
            thread.run(work())
        assert work.ended.wait(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
        pressing.join()
        thread.close()


def test_work_ends_when_its_caller_is_interrupted_before_it_waits() -> None:
    endless = Work()

    class Hasty(EventLoopThread):
        def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
            super().start(work)
            endless.begun.wait(10)
            raise Interrupted

    thread = Hasty("test")
    try:
        with pytest.raises(Interrupted):
            thread.run(endless())
        assert endless.ended.wait(10)
    finally:
        thread.close()


def test_results_and_errors_come_back() -> None:
    thread = EventLoopThread("test")
    try:
        assert thread.call(lambda: threading.current_thread().name) == "test"
        with pytest.raises(ZeroDivisionError):
            thread.call(lambda: 1 // 0)
    finally:
        thread.close()


def test_closing_ends_the_work_that_others_wait_for() -> None:
    """Otherwise whoever commits or sends while another thread closes waits for ever."""
    work = Work()
    thread = EventLoopThread("test")
    future = thread.start(work())
    assert work.begun.wait(10)
    thread.close()
    with pytest.raises(CancelledError):
        future.result(10)
    assert work.ended.is_set()
    with pytest.raises(InvalidRequest):
        thread.run(work())


def test_a_caller_whose_loop_another_thread_closes_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work, errors = Work(), list[BaseException]()
    thread = EventLoopThread("test")

    def call() -> None:
        try:
            thread.run(work())
        except CancelledError as error:
            errors.append(error)

    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    assert work.begun.wait(10)
    thread.close()
    calling.join(10)
    assert errors
    assert not caplog.records


def test_a_callback_cannot_close_its_own_loop() -> None:
    thread = EventLoopThread("test")
    with pytest.raises(RuntimeError, match="must not close"):
        thread.call(thread.close)
    thread.close()
