"""An event loop on a thread of its own, for callers without one."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from types import FrameType
from typing import Any, TypeVar

import pytest

from leadline_client.errors import InvalidRequest
from leadline_client.event_loop_thread import EventLoopThread
from tests.unit.client.standin import StandInCluster

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


FORKED = """
import os, sys
from leadline_client import Consumer, Producer
from leadline_client.errors import InvalidRequest
with Producer(sys.argv[1]) as producer, Consumer(sys.argv[1]) as consumer:
    producer.send("t", b"parent", partition=0).result()
    child = os.fork()
    if not child:
        calls = [
            lambda: producer.send("t", b"child", partition=0),
            lambda: producer.send_many("t", [b"child"], partition=0),
            producer.flush,
            consumer.poll,
        ]
        refused = 0
        for call in calls:
            try:
                call()
            except InvalidRequest as refusal:
                refused += "after the fork" in refusal.message
        sys.exit(refused)
    refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    producer.send("t", b"again", partition=0).result()
    print(refused)
"""


def test_a_forked_child_is_refused_what_would_wait_for_ever(cluster: StandInCluster) -> None:
    """It has no thread that could do it; leaving the `with` block closes what is its parent's."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED, cluster.bootstrap[0]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("4\n", "")
    assert cluster.values(0) == [b"parent", b"again"]


def test_work_that_a_close_comes_before_is_not_left_unawaited() -> None:
    class ClosedBetween(EventLoopThread):
        """Is closed by another thread after it was checked that it is open."""

        def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
            self.close()
            return super().start(work)

    with pytest.raises(InvalidRequest):
        ClosedBetween("test").run(asyncio.sleep(60))
    gc.collect()
