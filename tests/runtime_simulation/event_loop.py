"""An asyncio event loop in virtual time, shared by simulated processes that die or freeze.

Each callback belongs to the process in whose context it was scheduled. Callbacks of a dead process
never run, not even its `finally` blocks; those of a frozen process run when it resumes. One seed
determines everything: callbacks run in the order of their time, and then of their scheduling.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heappop, heappush
from types import CoroutineType
from typing import Any, TypeVar, TypeVarTuple

from tests.runtime_simulation.process import Process

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

OWNER: ContextVar[Process | None] = ContextVar("simulated_process", default=None)
"""The process whose code runs; None for the world around the processes."""


_MOST_AWAITS = 20
"""How often a coroutine that is thrown away may await in its `finally` blocks."""


def is_stuck(work: Callable[[], None]) -> bool:
    """Return whether the disk of the process that runs hangs; then the work is done later."""
    owner = OWNER.get()
    if owner is None or owner.stuck is None:
        return False
    owner.stuck.append(work)
    return True


class _NumberedFuture(asyncio.Future[Any]):
    """A future whose place in a set follows from its number, not from its address in memory."""

    def __init__(self, loop: SimulatedLoop, number: int) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set follows from its number, not from its address in memory."""

    def __init__(
        self, loop: SimulatedLoop, number: int, coro: Any, name: str | None, context: Context | None
    ) -> None:
        self._number = number
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class OutOfSteps(Exception):
    """A run has made more steps than it may: something spins without time passing."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks in virtual time, in seconds, which passes only while none is ready."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self._over = False
        self.now_s = now_s
        self.steps = 0
        self.errors: list[dict[str, Any]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._runnable: deque[tuple[Process | None, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, Process | None, asyncio.Handle]] = []
        self._number = 0

    # -- running ---------------------------------------------------------------

    def run_until(
        self, until_s: float, stop: Callable[[], bool] = lambda: False, most_steps: int = 2_000_000
    ) -> bool:
        """Run up to a time; return True at once when `stop()` is true after a callback.

        Raises:
            OutOfSteps: `most_steps` callbacks have run since the loop was made.

        """
        asyncio._set_running_loop(self)
        try:
            while self._make_ready(until_s):
                owner, handle = self._runnable.popleft()
                if handle._cancelled or (owner is not None and not self._may_run(owner, handle)):
                    continue
                self.steps += 1
                if self.steps > most_steps:
                    raise OutOfSteps(f"{most_steps} steps until {self.now_s:.3f} s")
                handle._run()
                if stop():
                    return True
        finally:
            asyncio._set_running_loop(None)
        return False

    def _make_ready(self, until_s: float) -> bool:
        """Let time pass until something is ready; return whether that is before `until_s`."""
        if self._runnable:
            return True
        while self._timers and self._timers[0][0] <= until_s:
            at_s, _, owner, handle = heappop(self._timers)
            if not handle._cancelled:
                self.now_s = max(self.now_s, at_s)
                self._runnable.append((owner, handle))
                return True
        self.now_s = until_s
        return False

    @staticmethod
    def _may_run(owner: Process, handle: asyncio.Handle) -> bool:
        if owner.frozen:
            owner.missed.append(handle)
        return owner.alive and not owner.frozen

    def resume(self, process: Process) -> None:
        """Let a frozen process run again; first what it has missed, in order."""
        process.frozen = False
        missed, process.missed = process.missed, []
        self._runnable.extend((process, handle) for handle in missed)

    def close(self) -> None:
        """End everything. Code of the processes that runs while it is thrown away has no effect."""
        self._over = True
        self._runnable.clear()
        self._timers.clear()
        asyncio._set_running_loop(self)
        try:
            for task in self._tasks:
                _throw_away(task)
        finally:
            asyncio._set_running_loop(None)
        self._tasks.clear()

    # -- scheduling ------------------------------------------------------------

    def in_process(self, process: Process, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task that belongs to a process, with all that it starts."""
        context = Context()
        context.run(OWNER.set, process)
        return self.create_task(coroutine, name=process.name, context=context)

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Call the world back in `delay_s`, whatever process asks for it."""
        handle = asyncio.Handle(callback, args, self, Context())
        heappush(self._timers, (self.now_s + delay_s, self._next_number(), None, handle))

    def in_process_after(
        self, process: Process, delay_s: float, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call back in `delay_s` as an event of a process, from outside of all its tasks."""
        context = Context()
        context.run(OWNER.set, process)
        handle = asyncio.Handle(callback, args, self, context)
        heappush(self._timers, (self.now_s + delay_s, self._next_number(), process, handle))

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        if not self._over:
            self._runnable.append((context.get(OWNER), handle))
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._over:
            heappush(self._timers, (when, self._next_number(), context.get(OWNER), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return _NumberedFuture(self, self._next_number())

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        text = None if name is None else str(name)
        task = _NumberedTask(self, self._next_number(), coro, text, context)
        # Kept, because throwing away a task runs the `finally` blocks of a dead process.
        self._tasks.append(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[[*_Ts], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Run a function of a thread at once; its result arrives some time later."""
        del executor
        future: asyncio.Future[_T] = self.create_future()
        self.call_later(self.thread_delay_s(), self._finish, future, func, args)
        return future

    def _finish(self, future: asyncio.Future[Any], func: Callable[..., Any], args: Any) -> None:
        if future.cancelled() or is_stuck(partial(self._finish, future, func, args)):
            return
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)

    thread_delay_s: Callable[[], float] = staticmethod(lambda: 0.0)
    """How long the work of a thread takes."""

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # -- what asyncio asks for -------------------------------------------------

    def time(self) -> float:
        return self.now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._over

    def is_closed(self) -> bool:
        return self._over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # Futures of killed processes are thrown away without a look at their outcome.
        if not self._over and "handle" in context:
            self.errors.append(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are skipped when they are due."""


def _throw_away(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it has no public name
    if task.done():
        return
    # The innermost first: one that awaits in a `finally` block would outlive those around it.
    for coroutine in reversed(_awaited(task.get_coro())):
        for _ in range(_MOST_AWAITS):
            try:
                coroutine.close()
            except RuntimeError:  # It awaits in a `finally` block.
                continue
            except ValueError:  # It is running.
                pass
            break


def _awaited(outermost: object) -> list[CoroutineType[Any, Any, Any]]:
    """Return a coroutine, the one that it awaits, and so on."""
    found: list[CoroutineType[Any, Any, Any]] = []
    while isinstance(outermost, CoroutineType):
        found.append(outermost)
        outermost = outermost.cr_await
    return found
