"""An event loop on a thread of its own, for blocking faces of asynchronous parts."""

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
        """Run `work` on the loop and return its result, blocking; it ends with its caller."""
        # Here before the work begins: an interruption may come at any time from then on.
        given_up: Future[None] = Future()
        try:
            return self.start(self._until(given_up, work)).result()
        except BaseException:
            given_up.set_result(None)
            raise

    async def _until(self, given_up: Future[None], work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        given_up.add_done_callback(lambda _: self._loop.call_soon_threadsafe(task.cancel))
        return await task

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop and return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, action: Callable[[], T]) -> T:
        """Do something that does not wait on the loop's thread, and return its result."""

        async def work() -> T:
            return action()

        return self.run(work())

    def close(self) -> None:
        """Stop the loop and wait for the thread's end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
