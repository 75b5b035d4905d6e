"""A few controllers and recording brokers for one test, started and stopped together."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.services.controllers import RecordingBroker, RunningController, active
from tests.support.services.zookeeper import until


class Rig:
    """Starts controllers and brokers, and stops them."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.controllers: list[RunningController] = []
        self.brokers: dict[int, RecordingBroker] = {}

    async def controller(self, **options: Any) -> RunningController:
        made = RunningController(len(self.controllers) + 1, self.hosts, **options)
        self.controllers.append(made)
        await made.start()
        return made

    async def add_brokers(self, *ids: int) -> None:
        for broker_id in ids:
            self.brokers[broker_id] = RecordingBroker(broker_id, self.hosts)
            await self.brokers[broker_id].start()

    async def up(self, brokers: int = 3, **options: Any) -> RunningController:
        """Start a controller and brokers, and wait until all have their grant."""
        controller = await self.controller(**options)
        await self.add_brokers(*range(1, brokers + 1))
        await active(self.controllers)
        await until(
            lambda: all(b.metadata_version for b in self.brokers.values()), "brokers are granted"
        )
        return controller

    async def settled(self, controller: RunningController) -> None:
        """Wait until a controller is active, and its live brokers have acknowledged everything."""
        await until(lambda: controller.is_active, "the controller is active")
        elected = controller.leadership.active_controller
        assert elected is not None
        await until(
            lambda: elected.image.live == self.live and elected.dispatcher.idle(),
            "brokers are up to date",
        )

    @property
    def live(self) -> frozenset[int]:
        return frozenset(b.id for b in self.brokers.values() if b.is_registered)

    async def stop(self) -> None:
        await asyncio.gather(*(c.stop() for c in self.controllers))
        await asyncio.gather(*(b.stop() for b in self.brokers.values()))


async def create(controller: RunningController, name: str = "orders", **body: Any) -> Any:
    """Create a topic through the API."""
    answer = await controller.http.post("/v1/topics", json={"name": name, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()
