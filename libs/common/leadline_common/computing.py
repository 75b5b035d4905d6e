"""Running what a request has to compute beside the event loop, one at a time, in a bounded share.

Whoever may ask a question may ask many at once. A computation in a thread shares the interpreter's
lock with the event loop, which still runs every few milliseconds, but each further thread would
slow it down again. So there is one thread, a short queue, and a refusal for the rest. In the long
run computations get a fiftieth of a core, because they compete with the records of producers and
consumers; those that cost no more than any request are not counted. What a request may compute is
bounded by its own limits; nothing here interrupts it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from leadline_client.errors import ComputationsBusy, InvalidRequest

INLINE_WORK: Final = 20_000
"""Work that is done on the event loop, because it takes less than about 50 ms."""
MAX_WAITING: Final = 4
"""Computations that run or wait at a time in a process."""
FREE_WORK: Final = 1_000
"""Work that costs no more than any other request, and is always done at once."""
SHARE: Final = 0.02
"""The share of a core that the computations of a process get in the long run."""
BURST_S: Final = 0.5
"""Seconds that may be computed before that, so that a few questions are answered at once."""
LONGEST_DELAY_S: Final = 10.0
"""A question that would wait for longer is refused."""

_Result = TypeVar("_Result")


def check_work(name: str, work: int, limit: int) -> None:
    """Refuse a request that would take too long to compute; `name` says what is multiplied.

    Raises:
        InvalidRequest: `work` is more than `limit`.

    """
    if work > limit:
        raise InvalidRequest(f"{name} is {work}; at most {limit} is computed: ask for less at once")


@dataclass(eq=False, slots=True)
class ComputingBudget:
    """The time that computations may take: `SHARE` of the time, and at most `BURST_S` at once."""

    _paid_at_s: float = field(default=0.0, init=False)
    """When everything that was computed so far is paid for."""

    def charge(self, seconds: float, now_s: float) -> None:
        """Count a computation that has ended."""
        self._paid_at_s = max(self._paid_at_s, now_s) + seconds / SHARE

    def delay_s(self, now_s: float) -> float:
        """Return how long the next computation has to wait."""
        return max(0.0, self._paid_at_s - now_s - BURST_S / SHARE)


@dataclass(eq=False, slots=True)
class Computer:
    """Computes on the loop what is short, and in its one thread what is not, within a budget."""

    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="computation"), init=False
    )
    _budget: ComputingBudget = field(default_factory=ComputingBudget, init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _waiting: int = field(default=0, init=False)

    async def run(self, compute: Callable[[], _Result], work: int) -> _Result:
        """Return what `compute` returns. `work` estimates its steps, in units of about 2 us.

        Raises:
            ComputationsBusy: too many others wait already.

        """
        if work <= FREE_WORK:
            return compute()
        if work <= INLINE_WORK and not self._budget.delay_s(time.monotonic()):
            with self._charged():
                return compute()
        self.require_room()
        self._waiting += 1
        running = asyncio.create_task(self._in_turn(compute))
        running.add_done_callback(self._done)
        return await asyncio.shield(running)  # a caller that leaves does not make room early

    def require_room(self) -> None:
        """Refuse a long computation that would have to wait for too long.

        Raises:
            ComputationsBusy: too many others wait already, or the budget is spent.

        """
        delay_s = self._budget.delay_s(time.monotonic())
        if self._waiting >= MAX_WAITING or delay_s > LONGEST_DELAY_S:
            raise ComputationsBusy("too much is being computed, or was a moment ago: try again")

    async def _in_turn(self, compute: Callable[[], _Result]) -> _Result:
        async with self._turn:
            await asyncio.sleep(self._budget.delay_s(time.monotonic()))
            with self._charged():
                return await asyncio.get_running_loop().run_in_executor(self._thread, compute)

    @contextmanager
    def _charged(self) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            now_s = time.monotonic()
            self._budget.charge(now_s - began_s, now_s)

    def _done(self, running: asyncio.Task[_Result]) -> None:
        self._waiting -= 1
        if not running.cancelled():
            running.exception()  # the caller may have left
