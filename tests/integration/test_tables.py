"""Tables on a real cluster: appended once and in order while leaders die, and read as they were."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from leadline_client import Client, Producer, produce_table, read_table
from leadline_client.murmur2 import partition_for_key
from leadline_client.producer_settings import ProducerSettings
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until

ROWS = 30_000
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.timeout(180)
async def test_a_table_survives_the_death_of_a_leader(tmp_path: Path) -> None:
    """The brokers append each batch once, though the producer repeats those without an answer."""
    values = [b"%08d" % number for number in range(ROWS)]
    keys = [b"key %d" % (number % 97) for number in range(ROWS)]
    table = pa.table({"k": pa.array(keys, pa.binary()), "v": pa.array(values, pa.binary())})
    settings = ProducerSettings(batch_bytes=2_000)
    async with Cluster(tmp_path, brokers=3) as cluster:
        await cluster.client.create_topic(NewTopic("t", PARTITIONS, 3))
        await cluster.in_sync("t", 3)

        def append() -> int:
            with Producer(cluster.bootstrap, settings) as producer:
                return produce_table(producer, "t", table, key="k", value="v")

        async def begun() -> bool:
            return (await cluster.client.offsets("t", 0)).high_watermark > 0

        appending = asyncio.create_task(asyncio.to_thread(append))
        await wait_until(begun, "the first batch is committed")
        await cluster.kill(await cluster.leader_of("t", 0))
        assert await appending == ROWS

        def read() -> pa.Table:
            with Client(cluster.bootstrap) as client:
                return read_table(client, "t")

        found = await asyncio.to_thread(read)
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for key, value in zip(keys, values, strict=True):
        expected[partition_for_key(key, PARTITIONS)].append(value)
    assert found.column("value").to_pylist() == [value for rows in expected for value in rows]


async def test_brokers_accept_and_return_batches_of_every_compression(tmp_path: Path) -> None:
    rows = pa.table({"k": [b"a", None, b""] * 200, "v": [b"text " * 9, b"", None] * 200})
    async with Cluster(tmp_path, brokers=1) as cluster:
        await cluster.client.create_topic(NewTopic("t", len(CODECS), 1))

        def through(partition: int, codec: str) -> pa.Table:
            settings = ProducerSettings(compression=codec)
            with Producer(cluster.bootstrap, settings) as producer:
                produce_table(producer, "t", rows, key="k", value="v", partition=partition)
            with Client(cluster.bootstrap) as client:
                return read_table(client, "t", partitions=[partition], columns=["key", "value"])

        for partition, codec in enumerate(CODECS):
            found = await asyncio.to_thread(through, partition, codec)
            assert found.to_pylist() == [
                {"key": row["k"], "value": row["v"]} for row in rows.to_pylist()
            ], codec
