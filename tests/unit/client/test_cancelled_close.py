"""Consumers and producers whose close is cancelled: they leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from leadline_client.client import AsyncClient
from leadline_client.consumer_coordinator import ConsumerCoordinator
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import InvalidRequest
from leadline_client.http_transport import AsyncHttpTransport
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.transport import Request, Response
from tests.unit.client.standin import StandInCluster
from tests.unit.client.standin_coordinator import Conversation, StandInCoordinator
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_group_consumer import A, Member, started


class HeldRequests:
    """Holds requests of a kind until they are let go."""

    def __init__(self, coordinator: StandInCoordinator, kind: str) -> None:
        self.came, self.let_go = asyncio.Event(), asyncio.Event()
        self._kind, self._send = kind, coordinator.send
        coordinator.send = self.send  # type: ignore[method-assign]  # its transport for tests

    async def send(self, request: Request) -> Response:
        if request.url.endswith(f"/{self._kind}"):
            self.came.set()
            await self.let_go.wait()
        return await self._send(request)


async def cancelled_close(member: Member, came: asyncio.Event) -> None:
    closing = asyncio.create_task(member.consumer.aclose())
    await came.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def until_closed(channel: Conversation) -> None:
    async with asyncio.timeout(10):
        await channel._connection.wait_closed()


async def test_a_member_whose_close_is_cancelled_while_it_leaves_ends_its_channel(
    cluster: StandInCluster,
) -> None:
    """Otherwise it keeps its partitions, and nobody reads them until its process ends."""
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, coordinator):
        await member.records(10)
        held = HeldRequests(coordinator, "leave")
        await cancelled_close(member, held.came)
        await until_closed(channel)
        with pytest.raises(InvalidRequest):
            await member.consumer.poll()
        await member.consumer.aclose()  # does nothing more


async def test_a_member_whose_close_is_cancelled_while_a_commit_is_under_way_ends_its_channel(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    manual = ConsumerSettings(auto_commit_ms=None)
    async with started(cluster, {A: 0}, manual) as (member, channel, coordinator):
        await member.records(10)
        held = HeldRequests(coordinator, "offsets")
        commit = asyncio.create_task(member.consumer.commit({A: 5}))
        await held.came.wait()
        closing = asyncio.create_task(member.consumer.aclose())
        while ("revoked", (A,)) not in member.heard:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until_closed(channel)
        held.let_go.set()
        await commit


async def test_a_consumer_that_two_tasks_close_leaves_once(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, channel, _):
        await member.records(10)
        await asyncio.gather(*(member.consumer.aclose() for _ in range(3)))
        assert member.heard.count("leave") == 1
        await until_closed(channel)


async def test_a_consumer_whose_close_is_cancelled_closes_a_client_of_its_own(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0}) as (member, _, coordinator):
        member.consumer._owns_client = True
        await member.records(10)
        held = HeldRequests(coordinator, "leave")
        await cancelled_close(member, held.came)
        with pytest.raises(InvalidRequest):
            await member.client.describe("t")


async def test_a_poll_raises_what_has_ended_the_periodic_commits(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise offsets are not committed any more, and nobody learns of it."""
    fill(cluster, 0, range(10))
    commits = ConsumerSettings(auto_commit_ms=1)
    failing = asyncio.Event()

    async def fail(_: ConsumerCoordinator, timeout_s: float) -> None:
        if not failing.is_set():
            failing.set()
            raise ZeroDivisionError(timeout_s)

    monkeypatch.setattr(ConsumerCoordinator, "_auto_commit", fail)
    async with started(cluster, {A: 0}, commits) as (member, _, _):
        await failing.wait()
        with pytest.raises(ZeroDivisionError):
            await member.records(100)


class HeldIds:
    """Holds requests for producer ids."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        self._http = AsyncHttpTransport()

    async def send(self, request: Request) -> Response:
        if request.url.endswith("/producer-ids"):
            self.came.set()
            await asyncio.Event().wait()
        return await self._http.send(request)

    async def aclose(self) -> None:
        await self._http.aclose()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_aborted_producer_asks_for_no_id_any_more(
    cluster: StandInCluster, *, is_cancelled: bool
) -> None:
    before, transport = asyncio.all_tasks(), HeldIds()
    async with AsyncClient(cluster.bootstrap, transport=transport) as client:
        producer = AsyncProducer(client)
        record = await producer.send("t", b"v", partition=0)
        await transport.came.wait()
        if is_cancelled:
            closing = asyncio.create_task(producer.aclose())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
        else:
            await producer.abort()
        assert record.cancelled()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before


async def test_records_of_a_producer_whose_abort_is_cancelled_are_cancelled(
    cluster: StandInCluster,
) -> None:
    """Otherwise whoever waits for them does so for ever."""
    async with AsyncProducer(cluster.bootstrap, ProducerSettings(linger_ms=60_000)) as producer:
        records = [await producer.send("t", b"v", partition=number) for number in range(3)]
        aborting = asyncio.create_task(producer.abort())
        await asyncio.sleep(0)
        aborting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await aborting
        assert [one.cancelled() for one in records] == [True] * 3
