"""Readers and consumers whose log is truncated below their position (rule R15, KIP-320).

Broker 2 misses the second ten records and is then elected uncleanly, so the log that a reader has
read up to 20 ends at 10, and goes on with other records.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leadline_client.client import AsyncClient, Client
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import LogTruncated
from leadline_client.payloads import OutgoingRecord
from leadline_client.readers import AsyncPartitionReader, PartitionReader
from leadline_client.sync_consumer import Consumer
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until

TOPIC = NewTopic("t", replica_assignment={0: (1, 2)}, configs={"min.insync.replicas": "1"})
OLD = [f"o{number}".encode() for number in range(20)]
NEW = [f"n{number}".encode() for number in range(30)]


async def send(client: AsyncClient, values: list[bytes]) -> None:
    await client.produce("t", 0, [OutgoingRecord(value) for value in values])


@asynccontextmanager
async def truncatable(
    directory: Path, coordinators: int = 0
) -> AsyncIterator[tuple[Cluster, Callable[[], Awaitable[None]]]]:
    """Yield a cluster with the old records, and what truncates them to 10 and adds the new ones."""
    async with Cluster(directory, brokers=2, coordinators=coordinators) as cluster:
        await cluster.client.create_topic(TOPIC)
        await send(cluster.client, OLD[:10])
        await cluster.kill("broker-2")
        await cluster.in_sync("t", 1)
        await send(cluster.client, OLD[10:])

        async def truncate() -> None:
            await cluster.kill("broker-1")
            cluster.restart("broker-2")
            await cluster.until_ready("broker-2")

            async def has_no_leader() -> bool:
                return (await cluster.client.describe("t")).partitions[0].leader == -1

            await wait_until(has_no_leader, "t-0 has no leader")
            await cluster.client.elect("unclean", [("t", 0)])
            await cluster.leader_of("t", 0)
            await send(cluster.client, NEW)

        yield cluster, truncate


def check(error: LogTruncated) -> None:
    """Check that the error names the partition, the position, and the offsets at stake."""
    assert (error.topic, error.partition) == ("t", 0)
    assert (error.position, error.divergence_offset) == (20, 10)
    assert "t-0" in error.message
    assert "10" in error.message
    assert "20" in error.message


async def test_defect_02_readers_raise_when_their_log_was_truncated(tmp_path: Path) -> None:
    async with truncatable(tmp_path) as (cluster, truncate):
        reader = AsyncPartitionReader(cluster.client, "t", 0)
        assert [one.value async for one in reader.read_to(20)] == OLD
        with Client(cluster.bootstrap) as blocking_client:
            blocking = PartitionReader(blocking_client, "t", 0, "latest")
            assert await asyncio.to_thread(blocking.read) == []
            await truncate()
            for _ in range(2):  # Until a seek, each read raises.
                with pytest.raises(LogTruncated) as raised:
                    await reader.read()
                check(raised.value)
            with pytest.raises(LogTruncated) as raised:
                await asyncio.to_thread(blocking.read)
            check(raised.value)
        reader.position.seek(raised.value.divergence_offset)
        assert [one.value async for one in reader.read_to(40)] == NEW


async def test_defect_02_a_consumer_of_a_group_raises_before_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async with truncatable(tmp_path, coordinators=1) as (cluster, truncate):
        async with AsyncConsumer(cluster.client, "g") as consumer:
            await consumer.subscribe(["t"])
            assert await values_of(consumer, 20) == OLD
            await consumer.commit()
            document = await cluster.client.group_offsets("g")
            (row,) = document["offsets"]
            assert (row["offset"], row["leader_epoch"]) == (20, await epoch_of(cluster))
            await truncate()
            await expect_truncation(consumer)
        # Another member, which knows of the position only what was committed.
        async with AsyncConsumer(cluster.client, "g") as consumer:
            await consumer.subscribe(["t"])
            await expect_truncation(consumer)
        for words in ((), ("--json",)):
            code, error = await consume(cluster, "--group", "g", *words)
            assert code == 1
            if words:
                document = json.loads(error)
                assert (document["error_code"], document["outcome"]) == (41651, "refused")
                assert (document["position"], document["divergence_offset"]) == (20, 10)
            else:
                assert "truncated below 20" in error
                assert "from offset 10 to 19" in error
        settings = ConsumerSettings(offset_reset="latest")
        with Consumer(cluster.bootstrap, "g", settings=settings) as blocking:
            blocking.subscribe(["t"])
            assert await asyncio.to_thread(poll_values, blocking, 30) == NEW


async def values_of(consumer: AsyncConsumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += [one.record.value for one in await consumer.poll()]
    return found


def poll_values(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        found += [one.record.value for one in consumer.poll()]
    return found


async def expect_truncation(consumer: AsyncConsumer) -> None:
    """Poll until it raises LogTruncated; no record may come before."""
    with pytest.raises(LogTruncated) as raised:
        await asyncio.wait_for(anext(aiter(consumer)), 30)
    check(raised.value)


async def epoch_of(cluster: Cluster) -> int:
    return (await cluster.client.describe("t")).partitions[0].leader_epoch


async def consume(cluster: Cluster, *words: str) -> tuple[int | None, str]:
    """Run `leadline consume`; return its exit code and what it wrote to standard error."""
    command = [sys.executable, "-m", "leadline_cli", "consume", "t", "--data-dir"]
    process = await asyncio.create_subprocess_exec(
        *command,
        str(cluster.data_dir),
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, error = await asyncio.wait_for(process.communicate(), 60)
    assert output == b""
    return process.returncode, error.decode()
