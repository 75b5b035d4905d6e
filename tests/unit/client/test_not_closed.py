"""Producers and consumers that a program loses without closing them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from leadline_client.client import AsyncClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.sync_consumer import Consumer
from leadline_client.sync_producer import Producer
from tests.unit.client.standin import StandInCluster
from tests.unit.client.standin_coordinator import StandInCoordinator
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_group_consumer import NO_WAIT, A

WITHIN_S = 20


def lose(owner: list[object], thread: threading.Thread | None = None) -> None:
    """Drop the only reference to a list's object, and collect it until its thread has ended.

    The last reference to it may be that thread's own.
    """
    owner.clear()
    gc.collect()
    give_up = time.monotonic() + WITHIN_S
    while thread is not None and thread.is_alive():
        assert time.monotonic() < give_up
        gc.collect()
        thread.join(0.01)


def test_the_thread_of_a_lost_producer_ends_after_its_records_are_acknowledged(
    cluster: StandInCluster,
) -> None:
    producer = Producer(cluster.bootstrap, ProducerSettings(linger_ms=100))
    thread = producer._thread._thread
    producer.send("t", b"kept", partition=0)
    owner: list[object] = [producer]
    del producer
    with pytest.warns(ResourceWarning, match="a Producer was not closed"):
        lose(owner, thread)
    assert cluster.values(0) == [b"kept"]


def test_the_thread_of_a_lost_consumer_ends(cluster: StandInCluster) -> None:
    consumer = Consumer(cluster.bootstrap, limits=NO_WAIT)
    thread = consumer._thread._thread
    fill(cluster, 0, range(1))
    consumer.assign([A])
    assert len(consumer.poll(10)) == 1
    owner: list[object] = [consumer]
    del consumer
    with pytest.warns(ResourceWarning, match="Consumer was not closed"):
        lose(owner, thread)


async def test_a_lost_consumer_leaves_its_group(cluster: StandInCluster) -> None:
    """It would answer the coordinator for ever, and keep partitions that nobody reads."""
    async with StandInCoordinator().running() as coordinator:
        client = AsyncClient(cluster.bootstrap, transport=coordinator)
        consumer = AsyncConsumer(client, "g", limits=NO_WAIT)
        await consumer.subscribe(["t"])
        channel = await coordinator.channel()
        await channel.welcome()
        await channel.start({A: 0})
        assert await consumer.poll(0) == []
        owner: list[object] = [consumer]
        del consumer
        with pytest.warns(ResourceWarning, match="an AsyncConsumer was not closed"):
            lose(owner)
        await channel.closed()
        assert coordinator.events == ["leave"]
        await client.aclose()


def test_a_consumer_that_outlives_its_loop_is_collected_without_an_error(
    cluster: StandInCluster,
) -> None:
    async def joined() -> AsyncConsumer[bytes, bytes]:
        async with StandInCoordinator().running() as coordinator:
            client = AsyncClient(cluster.bootstrap, transport=coordinator)
            consumer = AsyncConsumer(client, "g", limits=NO_WAIT)
            await consumer.subscribe(["t"])
            await (await coordinator.channel()).welcome()
            return consumer

    owner: list[object] = [asyncio.run(joined())]
    with pytest.warns(ResourceWarning, match="an AsyncConsumer was not closed"):
        lose(owner)


def test_what_was_closed_is_collected_in_silence(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap) as producer, Consumer(cluster.bootstrap) as consumer:
        consumer.assign([A])
    del producer, consumer
    gc.collect()
