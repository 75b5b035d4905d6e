"""The event queue of one leadership term, and the base class of event handlers.

Handlers run one at a time. What they start beside the queue (a timer, a wait for
acknowledgements, a thread) only posts events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from leadline_client.errors import LeadlineError
from leadline_client.wire import TopicPartition
from leadline_common.access.caller import EVERYBODY, current_caller
from leadline_common.cause import new_cause
from leadline_common.clock import Clock
from leadline_common.tracing import spans
from leadline_controller.runtime.engine.events import (
    Answer,
    AnyEvent,
    ControllerEvent,
    ControllerRequest,
    IsrChanged,
    QueuedEvent,
    Reply,
    Trigger,
    handled_kind,
)
from leadline_controller.runtime.engine.guard import Guard


class EventQueue:
    """The events that wait for the active controller.

    `posted_ms` is the monotonic time at which the event being handled was posted, and
    `noticed_at` is the same as Unix ms, 0 before the first event.
    """

    def __init__(self, clock: Clock) -> None:
        self.posted_ms = 0
        self.noticed_at = 0
        self._clock = clock
        self._queue: asyncio.Queue[QueuedEvent] = asyncio.Queue()
        self._triggered: set[type[AnyEvent]] = set()
        self._timers: dict[type[Trigger], asyncio.TimerHandle] = {}
        self._after: dict[Callable[[], None], bool] = {}

    # -- posting ---------------------------------------------------------------

    def post(self, event: ControllerEvent, cause: str = "") -> None:
        """Append an event."""
        self._append(event, cause or new_cause())

    def trigger(self, kind: type[Trigger], cause: str = "") -> None:
        """Append a trigger, unless one of its type is in the queue already."""
        if kind not in self._triggered:
            self._triggered.add(kind)
            self._append(kind(), cause or new_cause())

    def _append(
        self,
        event: AnyEvent,
        cause: str,
        reply: Reply[Any] | None = None,
        guard: Guard | None = None,
    ) -> None:
        at_ms = self._clock.monotonic_ms()
        caller = EVERYBODY if reply is None else current_caller()
        span = spans.current()
        self._queue.put_nowait(QueuedEvent(event, cause, at_ms, reply, guard, caller, span))

    def trigger_later(self, delay_s: float, kind: type[Trigger]) -> None:
        """Post a trigger after a delay; one timer of each type runs at a time."""
        loop, timer = asyncio.get_running_loop(), self._timers.get(kind)
        if timer is None or timer.cancelled() or timer.when() <= loop.time():
            self._timers[kind] = loop.call_later(delay_s, self.trigger, kind)

    def invalidate(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Have the states of these partitions read again."""
        self.post(IsrChanged(tuple(topic_partitions)))

    def submit(
        self, request: ControllerRequest[Answer], cause: str, guard: Guard | None = None
    ) -> asyncio.Future[Answer]:
        """Append a request, and return the future of its answer."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._append(request, cause, Reply(future), guard)
        return future

    # -- handling --------------------------------------------------------------

    async def next_event(self) -> QueuedEvent:
        """Take the next event."""
        queued = await self._queue.get()
        self._triggered.discard(type(queued.event))
        self.posted_ms = queued.at_ms
        waited_ms = max(0, self._clock.monotonic_ms() - queued.at_ms)
        self.noticed_at = self._clock.wall_ms() - waited_ms
        return queued

    def after_event(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Return a function that requests a call of `callback` after the event being handled.

        Requested callbacks are called once each, in the order of these registrations.
        """
        self._after[callback] = False

        def request() -> None:
            self._after[callback] = True

        return request

    def run_after_event(self) -> list[Exception]:
        """Call the requested callbacks, and return the exceptions that they raised."""
        faults = []
        for callback, is_requested in self._after.items():
            if is_requested:
                self._after[callback] = False
                try:
                    callback()
                except Exception as fault:  # the others are due all the same
                    faults.append(fault)
        return faults

    def close(self, problem: LeadlineError) -> None:
        """End the timers, and refuse every request in the queue with `problem`."""
        for timer in self._timers.values():
            timer.cancel()
        while not self._queue.empty():
            self._queue.get_nowait().refuse(problem)


@dataclass(eq=False)
class EventHandler:
    """The base class of event handlers; subclasses override what they need."""

    _background: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def registered(self) -> dict[type[AnyEvent], Callable[..., Awaitable[None]]]:
        """Return the methods that handle events, by event type."""
        return {
            kind: getattr(self, name)
            for name, member in vars(type(self)).items()
            if callable(member) and (kind := handled_kind(member)) is not None
        }

    async def on_elected(self) -> None:
        """Resume what an earlier controller left (rule R8).

        Partition states are published by then, and brokers have been sent their grants.
        """

    async def reconcile(self) -> None:
        """Compare with ZooKeeper; brokers, topics and partition states have been read."""

    def run_in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something beside the queue, until it ends or the term does."""
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """End what runs beside the queue."""
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
