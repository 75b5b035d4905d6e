"""Several batches of a partition in flight: leaders die and freeze, the topic is recreated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from leadline_client.batch_window import MOST_IN_FLIGHT
from leadline_client.client import AsyncClient
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.readers import AsyncPartitionReader
from leadline_client.record_future import RecordFuture
from leadline_client.sent_records import RecordMetadata
from leadline_client.transport import AsyncTransport, Request, Response
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster

pytestmark = pytest.mark.slow

SETTINGS = ProducerSettings(batch_bytes=2_000, delivery_timeout_s=60)
VALUE_BYTES = 200
COUNT = 3_000


class CountingTransport:
    """Tells how many appends are under way; `most_in_flight` is the most there ever were."""

    def __init__(self, below: AsyncTransport) -> None:
        self.in_flight = self.most_in_flight = 0
        self._below = below
        self._changed = asyncio.Condition()

    async def send(self, request: Request) -> Response:
        if request.method != "POST" or not request.url.endswith("/records"):
            return await self._below.send(request)
        await self._add(1)
        try:
            return await self._below.send(request)
        finally:
            await self._add(-1)

    async def _add(self, number: int) -> None:
        async with self._changed:
            self.in_flight += number
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._changed.notify_all()

    async def until(self, count: int) -> None:
        """Wait until so many appends are under way at the same time."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.in_flight >= count)

    async def aclose(self) -> None:
        await self._below.aclose()


def value(number: int) -> bytes:
    return str(number).encode().ljust(VALUE_BYTES)


async def send(producer: AsyncProducer[bytes, bytes], numbers: range) -> list[RecordFuture]:
    return [await producer.send("t", value(number), partition=0) for number in numbers]


async def stored(client: AsyncClient) -> list[int]:
    """Return the numbers in partition 0, in the order of the log."""
    end = (await client.offsets("t", 0)).high_watermark
    reader = AsyncPartitionReader(client, "t", 0)
    return [int(record.value or b"") async for record in reader.read_to(end)]


async def disturbed(
    root: Path, disturb: Callable[[Cluster, str], Coroutine[None, None, None]]
) -> tuple[list[int], list[RecordMetadata]]:
    """Return what is stored and acknowledged if the leader is disturbed with batches in flight."""
    async with Cluster(root) as cluster:
        await cluster.client.create_topic(NewTopic("t", 1, 3))
        transport = CountingTransport(cluster.client.transport)
        client = AsyncClient(cluster.client.core.bootstrap, transport=transport)
        async with AsyncProducer(client, SETTINGS) as producer:
            futures = await send(producer, range(COUNT // 3))
            leader = await cluster.leader_of("t", 0)
            await transport.until(MOST_IN_FLIGHT)
            disturbing = asyncio.create_task(disturb(cluster, leader))
            futures += await send(producer, range(COUNT // 3, 2 * COUNT // 3))
            await disturbing
            futures += await send(producer, range(2 * COUNT // 3, COUNT))
            places = await asyncio.gather(*futures)
        assert transport.most_in_flight == MOST_IN_FLIGHT
        return await stored(cluster.client), places


def assert_all_once_in_order(found: list[int], places: list[RecordMetadata]) -> None:
    assert found == list(range(COUNT))
    assert [place.offset for place in places] == list(range(COUNT))


async def test_a_killed_leader_costs_neither_records_nor_their_order(tmp_path: Path) -> None:
    async def kill(cluster: Cluster, leader: str) -> None:
        await cluster.kill(leader)
        await cluster.leader_of("t", 0, not_in=[leader])

    assert_all_once_in_order(*await disturbed(tmp_path, kill))


async def test_a_restarted_leader_costs_neither_records_nor_their_order(tmp_path: Path) -> None:
    async def restart(cluster: Cluster, leader: str) -> None:
        await cluster.kill(leader)
        cluster.restart(leader)
        await cluster.until_ready(leader)

    assert_all_once_in_order(*await disturbed(tmp_path, restart))


async def test_a_frozen_leader_costs_neither_records_nor_their_order(tmp_path: Path) -> None:
    async def freeze(cluster: Cluster, leader: str) -> None:
        cluster.pause(leader)
        await cluster.leader_of("t", 0, not_in=[leader])
        cluster.resume(leader)

    assert_all_once_in_order(*await disturbed(tmp_path, freeze))


async def test_a_recreated_topic_has_each_record_at_most_once_and_in_order(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.client.create_topic(NewTopic("t", 1, 3))
        transport = CountingTransport(cluster.client.transport)
        client = AsyncClient(cluster.client.core.bootstrap, transport=transport)
        async with AsyncProducer(client, SETTINGS) as producer:
            futures = await send(producer, range(COUNT // 2))
            await transport.until(MOST_IN_FLIGHT)
            await cluster.client.delete_topic("t")
            await cluster.client.create_topic(NewTopic("t", 1, 3))
            await asyncio.gather(*futures, return_exceptions=True)
            futures += await send(producer, range(COUNT // 2, COUNT))
            await producer.flush()
        found = await stored(cluster.client)
        assert found == sorted(set(found))
        failed = {number for number in range(COUNT) if futures[number].exception() is not None}
        assert not failed & set(range(COUNT - COUNT // 4, COUNT)), "it goes on in the new topic"
        assert set(range(COUNT - COUNT // 4, COUNT)) <= set(found)
