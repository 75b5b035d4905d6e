"""The active controller is killed, and a topic is to be created."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Final

from aiokafka.errors import KafkaError

from leadline_client import LeadlineError
from peers.report.samples import Metric
from peers.sequences.on_cluster import Subject
from peers.systems.system import DEADLINE_S, System
from peers.systems.waiting import until_whole

CREATED: Final = Metric("controller killed → topic created", "s")
ATTEMPT_EVERY_S: Final = 0.5
REPLICAS: Final = 2
"""One of Kafka's brokers ends with its controller, so that a topic cannot have three replicas."""


async def measure(subject: Subject) -> AsyncIterator[Mapping[Metric, float]]:
    """Kill the active controller; yield how long it took until a new topic was created."""
    system = subject.system
    await until_whole(system)
    begun = time.monotonic()
    await system.kill_controller()
    created = await _first_created(system)
    await system.restart_controller()
    yield {CREATED: created - begun}


async def _first_created(system: System) -> float:
    """Return when the first of several attempts succeeded.

    An attempt may wait for the dead controller, so that another begins every half a second, each
    with a topic of its own.
    """
    first: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    attempts: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not first.done():
                name = f"after-{len(attempts)}"
                attempts.append(asyncio.create_task(_attempt(system, name, first)))
                await asyncio.wait([first], timeout=ATTEMPT_EVERY_S)
        return first.result()
    finally:
        for one in attempts:
            one.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)


async def _attempt(system: System, name: str, first: asyncio.Future[float]) -> None:
    """Create a topic; an error means that the controller is not there yet, and another follows."""
    with suppress(OSError, LeadlineError, KafkaError):
        await system.create_topic(name, 3, replicas=REPLICAS)
        if not first.done():
            first.set_result(time.monotonic())
