"""A drain whose plan fails in a way that nobody expects."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from leadline_client.errors import InternalError
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.engine.event_queue import EventQueue
from leadline_controller.runtime.reassignment.drains import DrainManager, DrainPlanned
from tests.support.manual_clock import ManualClock


@dataclass(frozen=True)
class FaultyInput:
    """Has a bug in its computation."""

    broker: int = 1

    def plan(self) -> None:
        raise KeyError(self.broker)


async def test_a_fault_in_a_plan_is_the_reason_why_the_drain_waits() -> None:
    queue = EventQueue(ManualClock(0))
    tasks: Any = SimpleNamespace(store=SimpleNamespace(subscribe=lambda *_: None))
    nothing: Any = None
    manager = DrainManager(ClusterImage(), queue, nothing, tasks, nothing)
    manager.run_in_background(manager._make_plan("task", cast("Any", FaultyInput())), "drain-plan")
    try:
        async with asyncio.timeout(10):
            event = (await queue.next_event()).event
    finally:
        await manager.close()
    assert isinstance(event, DrainPlanned)
    assert isinstance(event.rows, InternalError)
