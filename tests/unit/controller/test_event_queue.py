"""The controller's event queue: triggers, callbacks after an event, and the end of a term."""

from __future__ import annotations

import asyncio

import pytest

from leadline_client.errors import NoController
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    BrokersChanged,
    ControllerEvent,
    IsrChanged,
    Reconcile,
)
from leadline_controller.runtime.topics.deletions import DeleteTopic
from tests.support.manual_clock import ManualClock
from tests.unit.controller.images import NAME


async def test_a_trigger_is_queued_once_until_it_is_taken() -> None:
    queue = EventQueue(ManualClock())
    queue.trigger(Reconcile, "first")
    queue.trigger(Reconcile, "second")
    queue.trigger(BrokersChanged)
    assert (await queue.next_event()).cause == "first"
    queue.trigger(Reconcile, "third")
    assert type((await queue.next_event()).event) is BrokersChanged
    assert (await queue.next_event()).cause == "third"


async def test_a_later_trigger_has_one_timer() -> None:
    queue = EventQueue(ManualClock())
    queue.trigger_later(0.001, Reconcile)
    queue.trigger_later(0.001, Reconcile)
    async with asyncio.timeout(5):
        assert type((await queue.next_event()).event) is Reconcile
    await asyncio.sleep(0.01)
    queue.post(IsrChanged((NAME,)))
    assert type((await queue.next_event()).event) is IsrChanged


async def test_the_time_of_an_event_is_that_of_posting() -> None:
    clock = ManualClock(monotonic_ms=100)
    queue = EventQueue(clock)
    queue.invalidate([NAME])
    posted_at = clock.wall_ms()
    clock.advance(40)
    queued = await queue.next_event()
    assert (queued.event, queued.at_ms) == (IsrChanged((NAME,)), 100)
    assert (queue.posted_ms, queue.noticed_at) == (100, posted_at)


def test_requested_callbacks_run_once_in_the_order_of_registration() -> None:
    queue, calls = EventQueue(ManualClock()), list[str]()
    first = queue.after_event(lambda: calls.append("first"))
    second = queue.after_event(lambda: calls.append("second"))
    queue.after_event(lambda: calls.append("third"))
    second()
    first()
    second()
    queue.run_after_event()
    queue.run_after_event()
    assert calls == ["first", "second"]


async def test_requests_in_the_queue_are_refused_at_the_end() -> None:
    queue = EventQueue(ManualClock())
    answer = queue.submit(DeleteTopic("orders"), "cause")
    queue.close(NoController("over"))
    with pytest.raises(NoController):
        await answer


async def test_a_handler_ends_its_background_work() -> None:
    class Handler(EventHandler):
        @IsrChanged.handler
        async def on_isr_change(self, event: IsrChanged) -> None: ...

    handler = Handler()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    handler.run_in_background(work(), "work")
    await asyncio.sleep(0)
    await handler.close()
    assert ended.is_set()
    expected: dict[type[ControllerEvent], object] = {IsrChanged: handler.on_isr_change}
    assert handler.registered() == expected
