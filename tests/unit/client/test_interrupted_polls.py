"""Polls that are cancelled while a group moves partitions: nothing that was to be told is lost."""

from __future__ import annotations

import asyncio

import pytest

from leadline_client.channel import Started, Stopped
from leadline_client.consumer import AsyncConsumer
from leadline_client.transport import Request, Response
from tests.unit.client.standin import StandInCluster
from tests.unit.client.standin_coordinator import StandInCoordinator
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_group_consumer import A, B, started


class HeldCommits:
    """Holds the commits of a coordinator until they are let go."""

    def __init__(self, coordinator: StandInCoordinator) -> None:
        self.came, self.let_go = asyncio.Event(), asyncio.Event()
        self._send = coordinator.send
        coordinator.send = self.send  # type: ignore[method-assign]  # its transport for tests

    async def send(self, request: Request) -> Response:
        if request.url.endswith("/offsets") and "/v1/groups/" in request.url:
            self.came.set()
            await self.let_go.wait()
        return await self._send(request)


async def test_a_poll_cancelled_while_it_commits_before_a_revocation_leaves_it_to_the_next(
    cluster: StandInCluster,
) -> None:
    """Otherwise the group waits for the end of the lease, and the listener is never called."""
    for partition in (0, 1):
        fill(cluster, partition, range(10))
    async with started(cluster, {A: 0, B: 0}) as (member, channel, coordinator):
        await member.records(20)
        held = HeldCommits(coordinator)
        await channel.stop(A)
        poll = asyncio.create_task(member.consumer.poll(10))
        await held.came.wait()
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        held.let_go.set()
        await member.consumer.poll(0)
        assert ("revoked", (A,)) in member.heard
        assert (await channel.expect(Stopped)).partitions == (("t", (0,)),)
        assert member.consumer.assignment == (B,)


async def test_a_partition_lost_while_a_poll_is_cancelled_is_told_as_lost(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with started(cluster, {A: 0, B: 0}) as (member, channel, coordinator):
        await member.records(10)
        held = HeldCommits(coordinator)
        await channel.stop(A)
        poll = asyncio.create_task(member.consumer.poll(10))
        await held.came.wait()
        await channel.start({B: 0})
        await channel.expect(Started)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        held.let_go.set()
        await member.consumer.poll(0)
        assert member.heard[1:] == [("lost", (A,))]
        assert member.consumer.assignment == (B,)


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_poll_ends_that_is_cancelled_just_when_there_is_news(
    cluster: StandInCluster, turns: int
) -> None:
    """A poll that went on would keep the application from ending."""
    async with AsyncConsumer(cluster.bootstrap) as consumer:
        poll = asyncio.create_task(consumer.poll(3))
        for _ in range(10):  # Until it waits.
            await asyncio.sleep(0)
        consumer._fetcher.news.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
