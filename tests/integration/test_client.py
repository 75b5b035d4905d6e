"""Clients on a real cluster: nothing acknowledged is lost or doubled when leaders die."""

from __future__ import annotations

import asyncio
from pathlib import Path

from leadline_client.consumer import AsyncConsumer
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.readers import AsyncPartitionReader
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster

SETTINGS = ProducerSettings(linger_ms=5, batch_bytes=4_000, delivery_timeout_s=60)
COUNT = 6_000


async def test_a_stream_survives_its_leaders_in_order_and_without_duplicates(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        client = cluster.client
        await client.create_topic(NewTopic("t", 2, 3))
        values = [str(number).encode() for number in range(COUNT)]
        reading = asyncio.create_task(_read(cluster, COUNT))
        async with AsyncProducer(client, SETTINGS) as producer:
            futures = []
            for number, value in enumerate(values):
                futures.append(await producer.send("t", value, partition=0))
                if number == COUNT // 3:
                    await futures[-1]
                    first = await cluster.leader_of("t", 0)
                    await cluster.kill(first)
                if number == 2 * COUNT // 3:
                    await futures[-1]
                    cluster.restart(first)
                    await cluster.in_sync("t", 3)
                    second = await cluster.leader_of("t", 0)
                    assert second != first
                    await cluster.kill(second)
        places = await asyncio.gather(*futures)
        assert [place.offset for place in places] == list(range(COUNT))
        assert await asyncio.wait_for(reading, 30) == values


async def _read(cluster: Cluster, count: int) -> list[bytes | None]:
    reader = AsyncPartitionReader(cluster.client, "t", 0)
    return [record.value async for record in reader.read_to(count)]


async def test_json_and_raw_records_are_the_same_records(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=1) as cluster:
        client = cluster.client
        await client.create_topic(NewTopic("t", 1, 1))
        async with AsyncProducer(client) as producer:
            headers = (("h", b"\x00"), ("h", None))
            await producer.send("t", b"\xff", key=b"k", headers=headers, timestamp=5)
            await producer.send("t", None, key=b"k")
        fetched = await client.fetch("t", 0, 0)
        async with AsyncConsumer(client) as consumer:
            await consumer.assign([("t", 0)])
            raw = [one.record for one in await consumer.poll(timeout_s=10)]
        assert list(fetched.records) == raw
        assert (raw[0].key, raw[0].value, raw[0].timestamp) == (b"k", b"\xff", 5)
        assert raw[0].headers == headers
        assert raw[1].value is None
        assert await client.offset_for_timestamp("t", 0, 6) == 1
        for before_1970 in (-1, -2, -86_400_000):
            assert await client.offset_for_timestamp("t", 0, before_1970) == 0
        assert (await client.find_coordinator())["brokers"]
