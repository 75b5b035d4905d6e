"""Commits that are under way when a consumer closes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import StaleGeneration, UnknownMember
from leadline_client.groups import PartitionPositionMap
from leadline_client.sync_consumer import Consumer
from tests.unit.client.standin import StandInCluster
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_group_consumer import A, started
from tests.unit.client.test_interrupted_polls import HeldCommits


class HeldConsumer(AsyncConsumer):
    """Holds its commits until they are let go."""

    came = threading.Event()
    let_go = threading.Event()

    async def commit(
        self, offsets: PartitionPositionMap | None = None, *, timeout_s: float = 30.0
    ) -> None:
        assert offsets
        self.came.set()
        await asyncio.to_thread(self.let_go.wait, timeout_s)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[HeldConsumer]]:
    HeldConsumer.came, HeldConsumer.let_go = threading.Event(), threading.Event()
    monkeypatch.setattr("leadline_client.sync_consumer.AsyncConsumer", HeldConsumer)
    yield HeldConsumer
    HeldConsumer.let_go.set()


def test_a_blocking_consumer_closes_after_the_commits_that_nobody_waits_for(
    cluster: StandInCluster, held: type[HeldConsumer]
) -> None:
    """Otherwise they are lost, and whoever asks for their outcome waits for ever."""
    consumer = Consumer(cluster.bootstrap, "g")
    commit = consumer.commit_async({("t", 0): 1})
    assert held.came.wait(10)
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    held.let_go.set()
    commit.result(10)
    closing.join(10)
    assert not closing.is_alive()


async def test_a_member_leaves_after_the_commits_that_it_was_asked_for(
    cluster: StandInCluster,
) -> None:
    """As a stranger's commits they might be refused, or overwrite those of the next owner."""
    fill(cluster, 0, range(10))
    manual = ConsumerSettings(auto_commit_ms=None)
    async with started(cluster, {A: 0}, manual) as (member, _, coordinator):
        await member.records(10)
        held = HeldCommits(coordinator)
        first = asyncio.create_task(member.consumer.commit({A: 5}))
        await held.came.wait()
        second = asyncio.create_task(member.consumer.commit({A: 7}))
        await asyncio.sleep(0)
        closing = asyncio.create_task(member.consumer.aclose())
        while len(member.heard) < 2:  # noqa: ASYNC110 - nothing tells of a call of the listener
            await asyncio.sleep(0)
        held.let_go.set()
        await asyncio.gather(first, second, closing)
    assert [one["member"] for one in coordinator.commits] == ["m", "m"]
    assert member.heard[1:] == [("revoked", (A,)), {A: 5}, {A: 7}, "leave"]


async def test_a_commit_that_waits_for_a_rebalance_does_not_keep_a_member_from_leaving(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    manual = ConsumerSettings(auto_commit_ms=None)
    async with started(cluster, {A: 0}, manual) as (member, channel, coordinator):
        await member.records(10)
        await channel.close()
        await coordinator.channel()  # which never welcomes the member
        coordinator.refusals.extend([StaleGeneration("")] * 100)
        commit = asyncio.create_task(member.consumer.commit({A: 5}, timeout_s=60))
        await coordinator.refused.wait()
        async with asyncio.timeout(10):
            await member.consumer.aclose()
        with pytest.raises((StaleGeneration, UnknownMember)):
            await commit
