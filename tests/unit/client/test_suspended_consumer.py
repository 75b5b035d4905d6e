"""A consumer whose machine was suspended: others have its partitions (R16)."""

from __future__ import annotations

import pytest

from leadline_client.channel import Started
from leadline_client.client import AsyncClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.reading import ReadLimits
from leadline_client.wire import TopicPartition
from tests.support.suspended_machine import suspend
from tests.unit.client.standin import StandInCluster
from tests.unit.client.standin_coordinator import StandInCoordinator
from tests.unit.client.test_consumer import fill


async def test_a_consumer_returns_nothing_after_its_machine_was_suspended(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buffers are full, and nobody has told it yet that it was evicted."""
    fill(cluster, 0, range(20))
    settings = ConsumerSettings(auto_commit_ms=3_600_000, max_poll_records=5)
    async with (
        StandInCoordinator().running() as coordinator,
        AsyncClient(cluster.bootstrap, transport=coordinator) as client,
        AsyncConsumer(client, "g", settings=settings, limits=ReadLimits(wait_ms=0)) as consumer,
    ):
        await consumer.subscribe(["t"])
        channel = await coordinator.channel()
        await channel.welcome(stop_limit_ms=60_000)
        await channel.start({TopicPartition("t", 0): 0})
        await channel.expect(Started)
        while not await consumer.poll():
            pass
        suspend(monkeypatch, hours=1)
        assert await consumer.poll(0) == []
