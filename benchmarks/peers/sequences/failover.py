"""A broker that is no controller is killed, and started again."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Final

from peers.clients.worker import DRIVERS
from peers.report.samples import Metric
from peers.sequences.on_cluster import Subject
from peers.systems.system import BROKERS, System
from peers.systems.waiting import until, until_whole
from peers.systems.zookeeper import FailureWatch

ELECTED: Final = Metric("killed broker gone → its last partition has a leader", "s")
FIRST_HEALED: Final = Metric("killed broker gone → first survivor's metadata healed", "s")
ALL_HEALED: Final = Metric("killed broker gone → all survivors' metadata healed", "s")
ACKNOWLEDGED: Final = Metric("broker killed → first new acknowledgement", "s")
WHOLE: Final = Metric("broker started again → every replica in sync", "s")
POLL_S: Final = 0.05


async def measure(subject: Subject) -> AsyncIterator[Mapping[Metric, float]]:
    """Kill a broker; yield what it took until nothing missed it, and until it was back."""
    system = subject.system
    await until_whole(system)
    controller = await system.controller_broker()
    victim = next(number for number in BROKERS if number != controller)
    led = (await system.view(victim)).led_by(victim)
    driver = importlib.import_module(DRIVERS[subject.client.name]).connect(system.bootstrap)
    async with (
        system.zookeeper_session() as session,
        driver.sender(led[0].topic, led[0].number) as send,
    ):
        watch = FailureWatch(session, victim, [(one.topic, one.number) for one in led])
        await watch.arm()
        await send()
        killed = time.monotonic()
        await system.kill_broker(victim)
        survivors = [number for number in BROKERS if number != victim]
        async with asyncio.TaskGroup() as tasks:
            acknowledging = tasks.create_task(_time_of(send()))
            healing = [tasks.create_task(_healed(system, one, victim)) for one in survivors]
        await until(watch.is_complete, "every partition has a leader")
        healed = [one.result() for one in healing]
    yield {
        ELECTED: watch.last_elected_at - watch.gone_at,
        FIRST_HEALED: min(healed) - watch.gone_at,
        ALL_HEALED: max(healed) - watch.gone_at,
        ACKNOWLEDGED: acknowledging.result() - killed,
    }
    restarted = time.monotonic()
    await system.restart_broker(victim)
    yield {WHOLE: await until_whole(system) - restarted}


async def _healed(system: System, broker: int, victim: int) -> float:
    async def healed() -> bool:
        return (await system.view(broker)).is_healed_of(victim)

    return await until(healed, f"broker {broker} does not name broker {victim}", poll_s=POLL_S)


async def _time_of(sending: Awaitable[None]) -> float:
    await sending
    return time.monotonic()
