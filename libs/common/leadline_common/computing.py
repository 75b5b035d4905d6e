"""Running what a request has to compute beside the event loop, one computation at a time.

Whoever may ask a question may ask many at once. A computation in a thread shares the interpreter's
lock with the event loop, which still runs every few milliseconds, but each further thread would
slow it down again. So there is one thread, a short queue, and a refusal for the rest. What a
request may compute is bounded by its own limits; nothing here interrupts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from leadline_client.errors import ComputationsBusy, InvalidRequest

INLINE_WORK: Final = 20_000
"""Work that is done on the event loop, because it takes less than about 50 ms."""
MAX_WAITING: Final = 4
"""Computations that run or wait at a time in a process."""

_Result = TypeVar("_Result")


def check_work(name: str, work: int, limit: int) -> None:
    """Refuse a request that would take too long to compute; `name` says what is multiplied.

    Raises:
        InvalidRequest: `work` is more than `limit`.

    """
    if work > limit:
        raise InvalidRequest(f"{name} is {work}; at most {limit} is computed: ask for less at once")


@dataclass(eq=False, slots=True)
class Computer:
    """Computes on the loop what is short, and in its one thread what is not."""

    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="computation"), init=False
    )
    _waiting: int = field(default=0, init=False)

    async def run(self, compute: Callable[[], _Result], work: int) -> _Result:
        """Return what `compute` returns. `work` estimates its steps, in units of about 2 us.

        Raises:
            ComputationsBusy: too many others wait already.

        """
        if work <= INLINE_WORK:
            return compute()
        if self._waiting >= MAX_WAITING:
            raise ComputationsBusy(f"{MAX_WAITING} computations are running or waiting: try again")
        self._waiting += 1
        running = asyncio.get_running_loop().run_in_executor(self._thread, compute)
        running.add_done_callback(self._done)
        return await asyncio.shield(running)  # a caller that leaves does not make room early

    def _done(self, running: asyncio.Future[_Result]) -> None:
        self._waiting -= 1
        if not running.cancelled():
            running.exception()  # the caller may have left
