"""A watchdog thread for an event loop: what stands still may not keep its ZooKeeper session.

kazoo sends the heartbeats of a session from a thread of its own. So a process whose event loop is
blocked, by a long computation or a blocking call, would stay the active controller or the leader of
its partitions for as long as it is blocked: nobody takes over, though it answers nobody. The
watchdog gives its session up in that case, as if the process had died.

The bound is the whole session timeout. The lease (rule R10) has run out by then, so the process has
stopped to act already, and no session ends that would not have ended had its heartbeats been
sent by the loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

logger = structlog.get_logger(__name__)

POLLS: Final = 20
"""How often the watchdog looks within its bound."""
REPORTED_SHARE: Final = 1 / 3
"""A standstill that is longer than this share of the bound has a log line of its own."""
_FRAMES: Final = 4


@dataclass(eq=False, slots=True)
class Standstill:
    """How long a loop has stood still, in seconds during which this process could run. Pure.

    A process that the machine or an operator suspends runs neither loop nor watchdog. That time
    says nothing about the loop: one look counts for at most two intervals of `poll_s`.
    """

    poll_s: float
    seconds: float = field(default=0.0, init=False)
    _last_s: float | None = field(default=None, init=False)

    def look(self, now_s: float, *, has_run: bool) -> float:
        """Take one look at the time `now_s`; `has_run` if the loop has run since the last one."""
        elapsed = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        self.seconds = 0.0 if has_run else self.seconds + min(elapsed, 2 * self.poll_s)
        return self.seconds


@dataclass(eq=False, slots=True)
class LoopLag:
    """The delays of this process's event loop in seconds: the latest one, and the longest ever.

    `longest_busy_s` is the most processor time that the loop has taken during one delay. The rest
    of a delay is no work of the loop: other processes had the processor, or it waited for another
    thread.
    """

    latest_s: float = 0.0
    longest_s: float = 0.0
    longest_busy_s: float = 0.0

    def observe(self, lag_s: float, busy_s: float) -> None:
        """Note that the loop ran something `lag_s` seconds after it was due.

        It has taken the processor for `busy_s` seconds of these.
        """
        self.latest_s = lag_s
        self.longest_s = max(self.longest_s, lag_s)
        self.longest_busy_s = max(self.longest_busy_s, busy_s)


LAG: Final = LoopLag()
"""Of this process, which has one event loop; `leadline_common.metrics` shows it."""


class LoopWatchdog:
    """Calls `on_standstill` from its thread, once, if the running loop stands still for `bound_s`.

    It posts a callback to the loop and looks whether it was run. `stop` it before the loop ends.
    """

    def __init__(self, bound_s: float, on_standstill: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._bound_s = bound_s
        self._on_standstill = on_standstill
        self._stopped = threading.Event()
        self._posted_s: float | None = None
        self._posted_busy_s = 0.0
        self._busy_s = _busy_seconds_of(self._loop_thread)
        self._thread = threading.Thread(target=self._watch, name="loop-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; does not wait for it."""
        self._stopped.set()

    def _watch(self) -> None:
        standstill = Standstill(self._bound_s / POLLS)
        while not self._stopped.wait(standstill.poll_s):
            has_run = self._posted_s is None
            if standstill.look(time.monotonic(), has_run=has_run) >= self._bound_s:
                self._give_up(standstill.seconds)
                return
            if has_run and not self._post():
                return

    def _post(self) -> bool:
        self._posted_busy_s = self._busy_s()
        self._posted_s = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _run(self) -> None:
        posted_s, self._posted_s = self._posted_s, None
        if posted_s is None:
            return
        lag_s = time.monotonic() - posted_s
        busy_s = self._busy_s() - self._posted_busy_s
        LAG.observe(lag_s, busy_s)
        if lag_s >= REPORTED_SHARE * self._bound_s:
            logger.warning(
                "the event loop stood still",
                seconds=round(lag_s, 3),
                busy_seconds=round(busy_s, 3),
                longest_seconds=round(LAG.longest_s, 3),
            )

    def _give_up(self, seconds: float) -> None:
        """Act first: the loop may be blocked while it writes a line, which blocks other lines."""
        where, failure = self._where(), None
        try:
            self._on_standstill()
        except Exception as problem:
            failure = problem
        logger.error(
            "the event loop stands still: giving up the ZooKeeper session",
            seconds=round(seconds, 3),
            bound_seconds=self._bound_s,
            where=where,
        )
        if failure is not None:
            logger.error("could not give up the ZooKeeper session", exc_info=failure)

    def _where(self) -> list[str]:
        """Return the innermost frames of the loop's thread, for the log."""
        frame = sys._current_frames().get(self._loop_thread)
        found = traceback.extract_stack(frame)[-_FRAMES:] if frame is not None else []
        return [f"{one.filename}:{one.lineno} {one.name}" for one in found]


def _busy_seconds_of(thread: int) -> Callable[[], float]:
    """Return what reads a thread's processor time; always 0 on systems that have no such clock."""
    if sys.platform != "linux":
        return lambda: 0.0
    return partial(time.clock_gettime, time.pthread_getcpuclockid(thread))
