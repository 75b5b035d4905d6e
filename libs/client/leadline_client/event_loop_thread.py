"""An event loop on a thread of its own, for the blocking producer and consumer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines for callers that have no event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result; interrupting the caller cancels it."""
        # Created before the work begins, because an interrupt may come at any time after that.
        interrupted: Future[None] = Future()
        try:
            return self.start(self._until(interrupted, work)).result()
        except BaseException:
            interrupted.set_result(None)
            raise

    async def _until(self, interrupted: Future[None], work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        interrupted.add_done_callback(lambda _: self._loop.call_soon_threadsafe(task.cancel))
        return await task

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop and return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, action: Callable[[], T]) -> T:
        """Call a function that does not wait on the loop's thread, and return its result."""

        async def work() -> T:
            return action()

        return self.run(work())

    def close(self) -> None:
        """Stop the loop, and wait until the thread has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def copy_result(done: asyncio.Future[T], target: Future[T]) -> None:
    """Complete `target` as `done` was completed."""
    if done.cancelled():
        target.cancel()
    elif (error := done.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(done.result())
