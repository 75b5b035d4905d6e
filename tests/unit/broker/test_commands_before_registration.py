"""The controller may see a registration before its broker hears that it has succeeded."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from leadline_broker.domain.state import Addresses, Directories
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.controller_check import ControllerCheck
from leadline_broker.runtime.cluster.registrar import BrokerRegistrar
from leadline_client.errors import StaleIncarnation
from leadline_common.rpc import StopReplicaRequest
from leadline_common.zk.errors import ConnectionLoss
from leadline_common.znodes import BrokerRegistration
from tests.support.services.zookeeper import until
from tests.unit.broker.small_cluster import NodeStore, StateNodes


class SlowStore(NodeStore):
    """Answers a registration when it is told to, if at all."""

    def __init__(self) -> None:
        super().__init__(1, StateNodes(elected=(2, 7)))
        self.answer = asyncio.Event()
        self.breaks = False

    async def register(self, *fields: object) -> BrokerRegistration:
        registration = await super().register(*fields)  # type: ignore[arg-type]  # as it is given
        await self.answer.wait()
        if self.breaks:
            raise ConnectionLoss
        return registration


class Place:
    """A broker that registers, and its check of commands."""

    def __init__(self) -> None:
        self.store = SlowStore()
        self.state = BrokerState(1, lambda: True)
        self.registrar = BrokerRegistrar(
            self.store,
            self.state,
            rack=None,
            settings={},
            random=Random(1),
            directories=self.directories,
            on_fenced=lambda: None,
            on_registered=lambda: None,
        )
        self.state.addresses = Addresses("http://b", "https://b")
        self.check = ControllerCheck(self.store, self.state, self.registrar.answered)

    async def directories(self) -> Directories:
        return Directories("d", {})

    async def command(self, incarnation: int) -> None:
        request = StopReplicaRequest(2, 7, 1, incarnation, 100, "cause", True, [])
        await self.check.admit(request)


@pytest.fixture
async def place() -> Place:
    place = Place()
    await place.registrar.connect()
    return place


async def test_the_registrar_says_why_it_has_not_registered_until_it_has(place: Place) -> None:
    place.store.breaks = True
    place.store.answer.set()
    registering = asyncio.create_task(place.registrar.register())
    await until(lambda: bool(place.registrar.problem), "the answer is lost")
    assert place.registrar.problem == "ConnectionLoss"
    place.store.breaks = False
    await asyncio.wait_for(registering, 20)
    assert place.registrar.problem == ""


async def test_a_command_for_the_new_incarnation_waits_until_the_broker_knows_it(
    place: Place,
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(place.registrar.register())
        await asyncio.sleep(0)
        command = tasks.create_task(place.command(1))
        await asyncio.sleep(0)
        assert not command.done()
        place.store.answer.set()

    assert command.exception() is None


async def test_a_command_is_refused_if_the_registration_fails(place: Place) -> None:
    place.store.breaks = True
    registering = asyncio.ensure_future(place.registrar.register())
    await asyncio.sleep(0)
    command = asyncio.ensure_future(place.command(1))
    await asyncio.sleep(0)
    place.store.answer.set()

    with pytest.raises(StaleIncarnation):
        await command
    registering.cancel()


async def test_a_command_for_an_earlier_incarnation_does_not_wait(place: Place) -> None:
    place.store.answer.set()
    await place.registrar.register()
    place.store.answer.clear()
    place.state.fence()
    registering = asyncio.ensure_future(place.registrar.register())
    await asyncio.sleep(0)

    with pytest.raises(StaleIncarnation):
        await place.command(1)
    assert not registering.done()
    registering.cancel()


async def test_a_command_waits_for_no_registration_for_long(place: Place) -> None:
    registering = asyncio.ensure_future(place.registrar.register())
    await asyncio.sleep(0)

    with pytest.raises(StaleIncarnation):
        await place.command(1)
    registering.cancel()
