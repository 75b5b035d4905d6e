"""When a new controller reads the past, to compare it with the present."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from leadline_controller.adapters.history.store import SqlHistory
from leadline_controller.runtime.audit.comparison import HistoryComparison, HistoryRead
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.event_queue import EventQueue
from tests.support.manual_clock import ManualClock
from tests.unit.controller.broker_queues import Broker, Held, empty_queue, image_of
from tests.unit.controller.test_history_store import made


class SlowBroker(Broker):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def post(self, *request: Any) -> bytes:
        await self.may_answer.wait()
        return await super().post(*request)


async def test_the_past_is_read_when_brokers_have_their_roles() -> None:
    """Reading a long past takes the time in which they would be told them."""
    image, receiver, history = image_of([3]), SlowBroker(), SqlHistory("")
    await history.open("c1")
    await history.append(
        [made(0), made(1, actor="broker-1"), made(2, kind="controller_elected"), made(3)]
    )
    dispatcher = BrokerDispatcher(image, lambda _: queue)
    queue = empty_queue(image, receiver, Held(), dispatcher.progressed)
    dispatcher.follow_image([1])
    events = EventQueue(ManualClock())
    replicator = cast("Any", SimpleNamespace(history=history, catch_up=_is_complete))
    unused = cast("Any", None)
    comparison = HistoryComparison(unused, image, events, unused, replicator, dispatcher)
    await comparison.on_elected()
    read = asyncio.create_task(events.next_event())
    for _ in range(5):
        await history.ids()  # Its one thread has done what it was asked before.
    assert not read.done()

    receiver.may_answer.set()

    event = (await asyncio.wait_for(read, 10)).event
    assert isinstance(event, HistoryRead)
    assert (event.past.audit_id, event.since) == (3, 0)
    assert dispatcher.idle()
    await dispatcher.close()
    await comparison.close()
    await history.close()


async def _is_complete(_: float) -> bool:
    return True
