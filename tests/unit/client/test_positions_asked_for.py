"""A position that is asked for while the consumer reads: it moves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from leadline_client.client import AsyncClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.errors import LeadlineError, PartitionNotOwned
from leadline_client.fetching import ConsumedRecord
from leadline_client.http_transport import AsyncHttpTransport
from leadline_client.reading import ReadLimits
from leadline_client.retry import RetryPolicy
from leadline_client.security import Authenticator, Security
from leadline_client.transport import Request, Response
from tests.unit.client.standin import StandInCluster
from tests.unit.client.test_consumer import fill

A = ("t", 0)


class HeldLookups:
    """Holds the answers of leaders about their offsets, in the order of the requests."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self._below = AsyncHttpTransport(Authenticator(Security()))

    async def send(self, request: Request) -> Response:
        response = await self._below.send(request)
        if request.url.endswith("/offsets"):
            let_go = asyncio.Event()
            self.came.put_nowait(let_go)
            await let_go.wait()
        return response

    async def aclose(self) -> None:
        await self._below.aclose()


@asynccontextmanager
async def reading(cluster: StandInCluster) -> AsyncIterator[tuple[AsyncConsumer, HeldLookups]]:
    """Yield a consumer and its transport."""
    transport = HeldLookups()
    async with (
        AsyncClient(cluster.bootstrap, transport=transport) as client,
        AsyncConsumer(client, limits=ReadLimits(wait_ms=0)) as consumer,
    ):
        yield consumer, transport


async def test_a_late_answer_about_the_start_does_not_move_a_reader_back(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with reading(cluster) as (consumer, transport):
        await consumer.assign([A])
        assert await consumer.poll(0) == []  # The read has begun.
        of_read = await transport.came.get()
        asking = asyncio.create_task(consumer.position(A))
        of_position = await transport.came.get()
        of_read.set()
        found: list[ConsumedRecord] = []
        while len(found) < 10:
            found += await consumer.poll(5)
        of_position.set()
        assert await asking == 10
        assert [one.offset for one in found + await consumer.poll(0.2)] == list(range(10))


async def test_a_late_answer_about_the_start_does_not_undo_a_seek(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with reading(cluster) as (consumer, transport):
        await consumer.assign([A])
        asking = asyncio.create_task(consumer.position(A))
        of_position = await transport.came.get()
        await consumer.seek(A, 7)
        of_position.set()
        assert await asking == 7
        assert (await consumer.poll(5))[0].offset == 7


async def test_a_seek_to_a_time_drops_what_was_read_while_it_was_looked_up(
    cluster: StandInCluster,
) -> None:
    """Records of the former position would come after it, or the next read be out of range."""
    fill(cluster, 0, range(10))
    async with reading(cluster) as (consumer, transport):
        await consumer.assign([A], start=5)
        seeking = asyncio.create_task(consumer.seek_to_time(A, 0))
        of_time = await transport.came.get()
        found: list[ConsumedRecord] = []
        while not found:
            found = await consumer.poll(5, max_records=2)
        assert [one.offset for one in found] == [5, 6]
        of_time.set()
        assert await seeking == 0
        assert [one.offset for one in await consumer.poll(5)][:3] == [0, 1, 2]


async def test_a_seek_to_a_time_that_fails_keeps_the_position(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    cluster.offsets_refused = True
    async with (
        AsyncClient(cluster.bootstrap, policy=RetryPolicy(timeout_s=0.1)) as client,
        AsyncConsumer(client, limits=ReadLimits(wait_ms=0)) as consumer,
    ):
        await consumer.assign([A], start=5)
        with pytest.raises(LeadlineError):
            await consumer.seek_to_time(A, 0)
        assert await consumer.position(A) == 5
        assert (await consumer.poll(5))[0].offset == 5


async def test_a_seek_to_a_time_after_all_records_asks_once(cluster: StandInCluster) -> None:
    """A second request for the end could fail, and the former position would be lost."""
    fill(cluster, 0, range(10))
    async with reading(cluster) as (consumer, transport):
        await consumer.assign([A], start=5)
        seeking = asyncio.create_task(consumer.seek_to_time(A, 1 << 40))
        of_time = await transport.came.get()
        of_time.set()
        async with asyncio.timeout(20):
            assert await seeking == 10
        assert transport.came.empty()


async def test_a_seek_to_a_time_in_a_partition_that_was_removed_is_refused(
    cluster: StandInCluster,
) -> None:
    async with reading(cluster) as (consumer, transport):
        await consumer.assign([A], start=5)
        seeking = asyncio.create_task(consumer.seek_to_time(A, 0))
        of_time = await transport.came.get()
        await consumer.assign([])
        of_time.set()
        with pytest.raises(PartitionNotOwned):
            await seeking
