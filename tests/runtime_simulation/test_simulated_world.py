"""The simulated event loop, disk and network behave as what they stand for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from leadline_client.errors import ConnectionLost
from leadline_common.rpc import JSON, HeartbeatResponse
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.event_loop import OutOfSteps, SimulatedLoop
from tests.runtime_simulation.network import Network, NetworkWeather, Routes
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.world import World


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    """A loop at the time 1,000 s."""
    loop = SimulatedLoop(1000.0)
    yield loop
    loop.close()


def test_time_passes_only_while_nothing_can_run(loop: SimulatedLoop) -> None:
    async def sleeper() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    task = loop.in_process(Process("sleeper"), sleeper())

    assert not loop.run_until(2000.0)
    assert loop.run_until(9000.0, task.done)
    assert task.result() == 4600.0


def test_a_killed_process_runs_nothing_any_more_not_even_finally(loop: SimulatedLoop) -> None:
    said: list[str] = []

    async def work() -> None:
        try:
            said.append("begun")
            await asyncio.sleep(1)
        finally:
            said.append("cleaned up")

    process = Process("victim")
    loop.in_process(process, work())
    loop.run_until(1000.5)
    process.alive = False
    loop.run_until(1010.0)

    assert said == ["begun"]


def test_a_frozen_process_runs_what_it_missed_when_it_goes_on(loop: SimulatedLoop) -> None:
    seen: list[float] = []

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(loop.time())

    process = Process("sleeper")
    loop.in_process(process, work())
    loop.run_until(1001.5)
    process.frozen = True
    loop.run_until(1010.0)
    loop.resume(process)
    loop.run_until(1020.0)

    assert seen == [1001.0, 1010.0, 1011.0]


def test_a_set_of_tasks_or_futures_has_the_same_order_in_each_run(loop: SimulatedLoop) -> None:
    tasks = [loop.in_process(Process("sleeper"), asyncio.sleep(1)) for _ in range(40)]
    futures = [loop.create_future() for _ in range(40)]

    assert list(set(tasks)) == tasks
    assert list(set(futures)) == futures


def test_a_timeout_cancels_what_takes_too_long(loop: SimulatedLoop) -> None:
    async def impatient() -> bool:
        try:
            async with asyncio.timeout(2):
                await asyncio.Event().wait()
        except TimeoutError:
            return True
        return False

    task = loop.in_process(Process("impatient"), impatient())
    loop.run_until(1003.0)

    assert task.result()


def test_a_process_that_spins_ends_the_run(loop: SimulatedLoop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    loop.call_soon(spin)

    with pytest.raises(OutOfSteps):
        loop.run_until(1001.0, most_steps=1_000)


class Nothing(Random):
    """Chance, such that nothing survives a power cut that was not synced."""

    def random(self) -> float:
        return 0.9


def test_a_power_cut_forgets_contents_and_entries_that_were_not_synced(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk", Nothing(0))
    kept, grown, unlisted = (disk.root / name for name in ("kept", "grown", "unlisted"))
    kept.write_bytes(b"kept")
    grown.write_bytes(b"synced")
    for path in (kept, grown, disk.root):
        disk.synced(str(path))
    grown.write_bytes(b"synced and more")
    unlisted.write_bytes(b"its directory was not synced")
    disk.synced(str(unlisted))

    disk.cut_power()

    assert {path.name: path.read_bytes() for path in disk.root.iterdir()} == {
        "kept": b"kept",
        "grown": b"synced",
    }


def test_a_rename_is_undone_unless_its_directory_was_synced(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk", Nothing(0))
    old, new = disk.root / "file", disk.root / "file.tmp"
    old.write_bytes(b"old")
    disk.synced(str(old))
    disk.synced(str(disk.root))
    new.write_bytes(b"new")
    disk.synced(str(new))
    new.replace(old)

    disk.cut_power()

    assert old.read_bytes() == b"old"


class TestNetwork:
    """Requests between two processes."""

    def make(self, **weather: float) -> tuple[World, Network, list[str]]:
        world = World(7)
        network, served = Network(world), []
        network.weather = NetworkWeather(**weather)
        routes = Routes()

        async def handle(_: dict[str, int]) -> HeartbeatResponse:
            served.append("request")
            return HeartbeatResponse(1, 2)

        routes.add("/x", dict, handle)
        network.listen(Process("server"), routes)
        return world, network, served

    def ask(self, world: World, network: Network) -> asyncio.Task[bytes]:
        request = network.post("server", "/x", b"{}", JSON, 1.0)
        task = world.loop.in_process(Process("client"), request)
        world.loop.run_until(world.loop.now_s + 3.0)
        return task

    def test_a_request_is_answered(self) -> None:
        world, network, served = self.make()

        assert b"1" in self.ask(world, network).result()
        assert served == ["request"]
        world.loop.close()

    def test_a_request_may_arrive_twice(self) -> None:
        world, network, served = self.make(repeat=1.0)

        assert self.ask(world, network).exception() is None
        assert served == ["request", "request"]
        world.loop.close()

    def test_an_answer_may_be_lost_though_the_request_took_effect(self) -> None:
        world, network, served = self.make()
        network.cut.add(("server", "client"))

        assert isinstance(self.ask(world, network).exception(), ConnectionLost)
        assert served == ["request"]
        world.loop.close()

    def test_what_is_held_back_arrives_when_it_is_released(self) -> None:
        world, network, served = self.make()
        network.hold("client", "server")
        asking = self.ask(world, network)
        assert isinstance(asking.exception(), ConnectionLost)
        assert not served

        (arrive,) = network.release("client", "server")
        arrive()
        assert b"1" in self.ask(world, network).result()

        assert served == ["request", "request"]
        world.loop.close()

    def test_healing_drops_what_is_held_back(self) -> None:
        world, network, served = self.make()
        network.hold("client", "server")
        self.ask(world, network)

        network.heal()

        assert network.release("client", "server") == []
        assert b"1" in self.ask(world, network).result()
        assert served == ["request"]
        world.loop.close()

    def test_nobody_listens_where_a_process_was_killed(self) -> None:
        world, network, served = self.make()
        network.listen(Process("server", alive=False), Routes())

        assert isinstance(self.ask(world, network).exception(), ConnectionLost)
        assert not served
        world.loop.close()
