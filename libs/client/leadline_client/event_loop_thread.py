"""An event loop on a thread of its own, for the blocking producer and consumer."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakSet, finalize

from leadline_client.errors import InvalidRequest

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines for callers that have no event loop.

    `is_left_behind`: this process is a forked child of the one that has the thread.
    """

    def __init__(self, name: str) -> None:
        self.is_left_behind = False
        self._closing = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True)
        self._thread.start()
        _threads.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result; interrupting the caller cancels it.

        Raises:
            InvalidRequest: it was closed, or the thread is one of this process's parent.
            RuntimeError: this is the loop's own thread, which would wait for itself for ever.

        """
        self._check_open(work)
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a callback on the event loop's thread must not wait for that loop")
        # Created before the work begins, because an interrupt may come at any time after that.
        interrupted: Future[None] = Future()
        try:
            return self.start(self._until(interrupted, work)).result()
        except BaseException as error:
            interrupted.set_result(None)
            if isinstance(error, InvalidRequest):
                work.close()  # It has ended, or was not begun because of a close at this moment.
            raise

    async def _until(self, interrupted: Future[None], work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        interrupted.add_done_callback(lambda _: self._cancel(task))
        return await task

    def _cancel(self, task: asyncio.Future[Any]) -> None:
        with suppress(RuntimeError):  # The loop was closed, and has ended the task.
            self._loop.call_soon_threadsafe(task.cancel)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop and return its future; raises InvalidRequest once closed."""
        with self._closing:  # What is started is known to the loop before it ends all work.
            self._check_open(work)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _check_open(self, work: Coroutine[Any, Any, Any]) -> None:
        if self._closed or self.is_left_behind:
            work.close()
            self.require_own()
            raise InvalidRequest("the producer or consumer is closed")

    def require_own(self) -> None:
        """Raise InvalidRequest in a forked child, which would wait for a thread that it lacks."""
        if self.is_left_behind:
            raise InvalidRequest(
                "the producer or consumer belongs to the parent of this process: make one after "
                "the fork"
            )

    def call(self, action: Callable[[], T]) -> T:
        """Call a function that does not wait on the loop's thread, and return its result."""

        async def work() -> T:
            return action()

        return self.run(work())

    def call_soon(self, action: Callable[[], object]) -> None:
        """Have a function called on the loop's thread, without waiting for it."""
        self._loop.call_soon_threadsafe(action)

    def close(self) -> None:
        """Cancel all work, stop the loop, and wait until the thread has ended.

        Other threads may wait for that work: without an end they would wait for ever.

        Raises:
            RuntimeError: this is the loop's own thread.

        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback on the event loop's thread must not close that loop")
        with self._closing:
            self._closed = True
            ended = asyncio.run_coroutine_threadsafe(_end_all_others(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def end_with(self, owner: object, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """End the thread, after `last`, once nothing refers to `owner` any more.

        `last` must not refer to it either. Nothing happens if the owner has closed this before, nor
        at the end of the process.
        """
        finalize(owner, self._abandon, type(owner).__name__, last).atexit = False

    def _abandon(self, name: str, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        # Any thread may collect the owner, this loop's own as well: nothing may wait here.
        if self.is_left_behind:
            return
        with self._closing:
            if self._closed:
                return
            self._closed = True
            asyncio.run_coroutine_threadsafe(self._end(last), self._loop)
        warnings.warn(f"a {name} was not closed", ResourceWarning, stacklevel=2)

    async def _end(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        with suppress(Exception):  # There is nobody to tell.
            await last()
        await _end_all_others()
        self._loop.call_soon(self._loop.stop)  # After what the closed connections have scheduled.


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _end_all_others() -> None:
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)


_threads: Final[WeakSet[EventLoopThread]] = WeakSet()


def _leave_behind() -> None:
    """Note in a forked child that the threads are its parent's."""
    for thread in _threads:
        thread.is_left_behind = True


os.register_at_fork(after_in_child=_leave_behind)
