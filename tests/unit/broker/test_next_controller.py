"""A request for a controller that is gone waits for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from leadline_broker.api import next_controller
from leadline_broker.api.next_controller import with_next_controller
from leadline_broker.api.v3.lookup import settle
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_client.errors import ConnectionLost, LeadlineError, NoController
from leadline_common.rpc import ControllerRow, UpdateMetadataRequest


def tell(metadata: ClusterMetadataCache, version: int, epoch: int) -> None:
    """Apply metadata of the controller of an epoch, which has its id from that."""
    controller = ControllerRow(epoch, f"http://c/{epoch}", epoch, f"https://c/{epoch}")
    metadata.apply(UpdateMetadataRequest("c", controller, 1, 1, version, 0, True, "test", [], []))


@pytest.fixture
def metadata() -> ClusterMetadataCache:
    """That of the first controller."""
    known = ClusterMetadataCache()
    tell(known, 1, 1)
    return known


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but news of another controller end a wait."""
    monkeypatch.setattr(next_controller, "FIRST_PAUSE_MS", 60_000)
    monkeypatch.setattr(next_controller, "LONGEST_PAUSE_MS", 60_000)


class Sends:
    """Answers with the epoch of the controller that was asked, if it is one of those alive."""

    def __init__(self, metadata: ClusterMetadataCache, *alive: int) -> None:
        self.metadata = metadata
        self.alive = alive
        self.asked: list[int] = []
        self.answer = asyncio.Event()
        self.answer.set()

    async def __call__(self) -> int:
        controller = self.metadata.active_controller
        if controller is None:
            raise NoController("none is known")
        self.asked.append(controller.epoch)
        await self.answer.wait()
        if controller.epoch not in self.alive:
            raise NoController("it cannot be reached")
        return controller.epoch


async def started(sending: Coroutine[None, None, int]) -> asyncio.Task[int]:
    """Begin to send, until it waits."""
    task = asyncio.create_task(sending)
    await turns()
    return task


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("patient")
async def test_it_is_sent_to_the_next_one_once_that_is_known(
    metadata: ClusterMetadataCache,
) -> None:
    send = Sends(metadata, 2)
    task = await started(with_next_controller(metadata, send))

    tell(metadata, 2, 1)
    await turns()
    assert (send.asked, task.done()) == ([1], False), "newer metadata of the former controller"
    tell(metadata, 3, 2)
    await turns()

    assert task.done()
    assert send.asked == [1, 2]


@pytest.mark.usefixtures("patient")
async def test_its_metadata_may_have_the_version_of_the_former_one(
    metadata: ClusterMetadataCache,
) -> None:
    """Nothing but the controller has changed."""
    send = Sends(metadata, 2)
    task = await started(with_next_controller(metadata, send))

    tell(metadata, 1, 2)
    await turns()

    assert task.done()


async def test_one_that_is_not_active_yet_is_asked_again(metadata: ClusterMetadataCache) -> None:
    """It has been elected and takes over, or it has been started again where it was before."""
    send = Sends(metadata)
    task = await started(with_next_controller(metadata, send))

    send.alive = (1,)

    assert await task == 1


@pytest.mark.usefixtures("patient")
async def test_the_same_one_may_be_elected_again(metadata: ClusterMetadataCache) -> None:
    send = Sends(metadata)
    task = await started(with_next_controller(metadata, send))
    again = ControllerRow(1, "http://c/1", 2, "https://c/1")

    send.alive = (2,)
    metadata.apply(UpdateMetadataRequest("c", again, 1, 1, 2, 0, True, "test", [], []))

    assert await task == 2


@pytest.mark.usefixtures("patient")
async def test_one_that_became_known_meanwhile_is_asked_at_once(
    metadata: ClusterMetadataCache,
) -> None:
    send = Sends(metadata, 2)
    send.answer.clear()
    task = await started(with_next_controller(metadata, send))

    tell(metadata, 2, 2)
    send.answer.set()

    assert await task == 2


async def test_without_another_one_it_fails_in_the_end(
    metadata: ClusterMetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_controller, "NEXT_CONTROLLER_S", 0.05)
    send = Sends(metadata)

    with pytest.raises(NoController, match="cannot be reached"):
        await with_next_controller(metadata, send)

    assert set(send.asked) == {1}


@pytest.mark.usefixtures("patient")
async def test_nothing_holds_up_a_broker_that_stops(metadata: ClusterMetadataCache) -> None:
    """What waits for another controller, or for newer metadata, is answered at once."""
    send = Sends(metadata)
    task = await started(with_next_controller(metadata, send))
    polling = asyncio.create_task(metadata.wait_newer(metadata.version, 30_000))
    settling = asyncio.create_task(settle(metadata, lambda: False))
    await turns()

    metadata.stop()

    async with asyncio.timeout(2):
        with pytest.raises(NoController, match="cannot be reached"):
            await task
        assert not await polling
        assert not await settling
        assert not await metadata.wait_newer(metadata.version, 30_000)
    assert send.asked == [1]


async def test_a_broker_that_knows_none_says_so_at_once() -> None:
    send = Sends(ClusterMetadataCache())

    with pytest.raises(NoController, match="none is known"):
        await with_next_controller(send.metadata, send)


@pytest.mark.parametrize("error", [ConnectionLost("it did not answer"), LeadlineError("no")])
async def test_what_may_have_happened_is_not_sent_again(
    metadata: ClusterMetadataCache, error: LeadlineError
) -> None:
    calls: list[int] = []

    async def send() -> int:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        await with_next_controller(metadata, send)

    assert calls == [1]
