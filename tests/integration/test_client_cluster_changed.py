"""A cluster that is wiped and recreated at the same addresses: clients say so (rule R15)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from leadline_client.client import AsyncClient, Client
from leadline_client.consumer import AsyncConsumer
from leadline_client.errors import ClusterChanged, LeadlineError, OutcomeUnknown
from leadline_client.payloads import OutgoingRecord
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.readers import AsyncPartitionReader, PartitionReader
from leadline_client.record_future import RecordFuture
from leadline_client.sync_consumer import Consumer
from leadline_client.wire import NewTopic
from leadline_common.zk.connection import OLDER_DATA
from leadline_common.zk.connection_record import NO_SESSION
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.errors import LeadlineSparkError
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.slow

OLD = [f"o{number}".encode() for number in range(20)]
SETTINGS = ProducerSettings(delivery_timeout_s=60)


def running(directory: Path) -> Cluster:
    return Cluster(directory, brokers=2, coordinators=1)


def wipe(directory: Path) -> None:
    """Delete all data of the cluster, but not where its services listen."""
    for service in directory.iterdir():
        if service.is_dir() and service.name.rpartition("-")[0] in ("broker", "controller"):
            shutil.rmtree(service)
    wipe_zookeeper(directory)


def wipe_zookeeper(directory: Path) -> None:
    """Delete the data of ZooKeeper, which must be stopped."""
    for data in directory.glob("zookeeper-*/**/version-2"):
        shutil.rmtree(data)


async def fill(client: AsyncClient, values: list[bytes]) -> None:
    await client.create_topic(NewTopic("t", 1, 2))
    await client.produce("t", 0, [OutgoingRecord(value) for value in values])


async def test_defect_09_clients_notice_that_the_cluster_was_recreated(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        addresses, old_id = cluster.bootstrap, cluster.file.cluster_id
        await fill(cluster.client, OLD)
        client, blocking = AsyncClient(addresses), Client(addresses)
        reader, blocking_reader = (
            AsyncPartitionReader(client, "t", 0),
            PartitionReader(blocking, "t", 0),
        )
        assert [one.value async for one in reader.read_to(20)] == OLD
        assert len(await asyncio.to_thread(lambda: list(blocking_reader.read_to(20)))) == 20
        consumer, blocking_consumer = AsyncConsumer(client, "g"), Consumer(addresses, "h")
        await consumer.subscribe(["t"])
        await asyncio.to_thread(blocking_consumer.subscribe, ["t"])
        await anext(aiter(consumer))
        await asyncio.to_thread(lambda: next(iter(blocking_consumer)))
        producer = AsyncProducer(client, SETTINGS)
        await (await producer.send("t", b"last"))
        spark = ClusterClient(Connection(tuple(addresses.split(","))))
        await asyncio.to_thread(spark.metadata)
        await cluster.kill("broker-1")
        await cluster.kill("broker-2")
        in_flight = await producer.send("t", b"in flight")
    wipe(tmp_path)
    async with running(tmp_path) as cluster:
        assert cluster.bootstrap == addresses, "void: the ports were taken"
        new_id = cluster.file.cluster_id
        assert new_id != old_id
        await fill(cluster.client, [b"n"] * 30)

        async def raises(act: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(ClusterChanged) as changed:
                await asyncio.wait_for(act(), 30)
            assert old_id in changed.value.message
            assert new_id in changed.value.message
            assert "make a new client" in changed.value.message

        await raises(reader.read)
        await raises(lambda: asyncio.to_thread(blocking_reader.read))
        await raises(client.list_topics)
        await raises(lambda: client.delete_topic("t"))
        await raises(lambda: client.commit_offsets("x", {("t", 0): 1}))
        await raises(lambda: asyncio.to_thread(blocking.delete_topic, "t"))
        await raises(lambda: anext(aiter(consumer)))
        await raises(lambda: asyncio.to_thread(lambda: next(iter(blocking_consumer))))
        assert isinstance(await outcome(in_flight), ClusterChanged | OutcomeUnknown)

        async def send() -> None:
            await (await producer.send("t", b"late"))

        await raises(send)
        with pytest.raises(LeadlineSparkError, match="LEADLINE_CLUSTER_CHANGED"):
            await asyncio.to_thread(spark.metadata)
        # Nothing of all that took effect in the new cluster.
        fetched = await cluster.client.fetch("t", 0, 0)
        assert [one.value for one in fetched.records] == [b"n"] * 30
        assert "x" not in {one["group"] for one in (await cluster.client.list_groups())["groups"]}
        await consumer.aclose(consumed=False)
        await asyncio.to_thread(blocking_consumer.close, consumed=False)
        await producer.abort()
        await client.aclose()
        blocking.close()


async def outcome(future: RecordFuture) -> BaseException | None:
    with suppress(LeadlineError):
        await asyncio.wait_for(future, 60)
    return future.exception()


async def test_defect_09_a_broker_does_not_take_its_logs_into_another_cluster(
    tmp_path: Path,
) -> None:
    """ZooKeeper loses its data while the broker runs: to a new cluster its replicas are unknown.

    No service uses what it has seen newer, and each says so.
    """
    async with Cluster(tmp_path, brokers=1, coordinators=1) as cluster:
        await cluster.client.create_topic(NewTopic("t", 1, 1))
        await cluster.client.produce("t", 0, [OutgoingRecord(value) for value in OLD])
        old_id = cluster.file.cluster_id
        await cluster.kill("zookeeper-1")
        wipe_zookeeper(tmp_path)
        cluster.restart("zookeeper-1")
        for name in ("broker-1", "controller-1", "coordinator-1"):
            await until_it_says_older_data(cluster, name)
        await catch_up(cluster)

        async def has_ended() -> bool:
            return not cluster.child("broker-1").running

        await wait_until(has_ended, "the broker has ended")
        assert cluster.child("broker-1").exit_code != 0
        assert f"this broker belongs to cluster {old_id}" in cluster.log("broker-1")
        directories = [path.name for path in (tmp_path / "broker-1").iterdir() if path.is_dir()]
        assert [name for name in directories if name.startswith("t-0")]
        assert not [name for name in directories if "stray" in name]


async def until_it_says_older_data(cluster: Cluster, name: str) -> None:
    server = cluster.file.zookeeper

    async def says_it() -> bool:
        answer = await cluster.get(name, "/readyz")
        return f"{NO_SESSION}: {server}: {OLDER_DATA}" in answer.json()["reasons"]

    await wait_until(says_it, f"{name} says why it has no session")


async def catch_up(cluster: Cluster) -> None:
    """Write until ZooKeeper accepts clients of before: it refuses those that have seen more."""
    async with cluster.zookeeper() as session:
        await session.ensure_path("/written")
        for number in range(1_000):
            await session.set("/written", str(number).encode(), number)
