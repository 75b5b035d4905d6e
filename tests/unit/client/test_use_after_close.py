"""What is closed refuses every use at once, and opens nothing again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from leadline_client.client import AsyncClient, Client
from leadline_client.consumer import AsyncConsumer
from leadline_client.errors import InvalidRequest
from leadline_client.producer import AsyncProducer
from leadline_client.readers import AsyncPartitionReader, PartitionReader
from leadline_client.wire import TopicPartition
from tests.unit.client.standin import StandInCluster

PLACE = ("t", 0)
AsyncUse = Callable[[Any], Awaitable[Any]]

PRODUCER_USES: dict[str, AsyncUse] = {
    "send": lambda one: one.send("t", b"v"),
    "send_many": lambda one: one.send_many("t", [b"v"]),
    "partition_count": lambda one: one.partition_count("t"),
}
CONSUMER_USES: dict[str, AsyncUse] = {
    "poll": lambda one: one.poll(60),
    "assign": lambda one: one.assign([PLACE]),
    "subscribe": lambda one: one.subscribe(["t"]),
    "seek": lambda one: one.seek(PLACE, 0),
    "seek_to_time": lambda one: one.seek_to_time(PLACE, 0),
    "position": lambda one: one.position(PLACE),
    "commit": lambda one: one.commit({TopicPartition("t", 0): 1}),
    "committed": lambda one: one.committed(),
}


async def refuse(use: AsyncUse, one: Any) -> None:
    """Check that a use of what is closed is refused at once, and begins nothing."""
    tasks = asyncio.all_tasks()
    async with asyncio.timeout(20):
        with pytest.raises(InvalidRequest, match="is closed"):
            await use(one)
    assert asyncio.all_tasks() == tasks


async def left_by_an_error(producer: AsyncProducer[bytes, bytes]) -> None:
    with suppress(ZeroDivisionError):
        async with producer:
            raise ZeroDivisionError


@pytest.mark.parametrize("use", PRODUCER_USES.values(), ids=PRODUCER_USES)
@pytest.mark.parametrize("end", [AsyncProducer.aclose, left_by_an_error])
@pytest.mark.parametrize("shared", [False, True], ids=["own client", "shared client"])
async def test_a_closed_producer_refuses_records(
    cluster: StandInCluster,
    use: AsyncUse,
    end: Callable[[AsyncProducer[bytes, bytes]], Awaitable[None]],
    shared: bool,
) -> None:
    async with AsyncClient(cluster.bootstrap) as client:
        producer = AsyncProducer[bytes, bytes](client if shared else cluster.bootstrap)
        await (await producer.send("t", b"before", partition=0))
        await end(producer)
        await refuse(use, producer)
        await producer.flush()
        await producer.aclose()
    assert [cluster.values(number) for number in range(3)] == [[b"before"], [], []]


@pytest.mark.parametrize("use", CONSUMER_USES.values(), ids=CONSUMER_USES)
@pytest.mark.parametrize("shared", [False, True], ids=["own client", "shared client"])
async def test_a_closed_consumer_refuses_every_call(
    cluster: StandInCluster, use: AsyncUse, shared: bool
) -> None:
    async with AsyncClient(cluster.bootstrap) as client:
        consumer = AsyncConsumer[bytes, bytes](client if shared else cluster.bootstrap, "g")
        await consumer.assign([PLACE])
        await consumer.aclose()
        await refuse(use, consumer)
        assert consumer.assignment == ()
        await consumer.aclose()


async def test_a_closed_client_refuses_requests_also_of_its_readers(
    cluster: StandInCluster,
) -> None:
    client = AsyncClient(cluster.bootstrap)
    await client.metadata()
    await client.aclose()
    await refuse(lambda one: one.metadata(), client)
    await refuse(lambda one: one.read(), AsyncPartitionReader(client, *PLACE))
    await client.aclose()


async def test_a_consumer_ends_although_its_client_is_closed(cluster: StandInCluster) -> None:
    before = asyncio.all_tasks()
    client = AsyncClient(cluster.bootstrap)
    consumer = AsyncConsumer[bytes, bytes](client)
    await consumer.assign([PLACE])
    assert await consumer.poll(0.01) == []
    await client.aclose()
    await consumer.aclose()
    assert asyncio.all_tasks() == before


def test_a_closed_blocking_client_refuses_requests_also_of_its_readers(
    cluster: StandInCluster,
) -> None:
    client = Client(cluster.bootstrap)
    client.metadata()
    client.close()
    for use in (client.metadata, PartitionReader(client, *PLACE).read):
        with pytest.raises(InvalidRequest, match="the client is closed"):
            use()
    client.close()
