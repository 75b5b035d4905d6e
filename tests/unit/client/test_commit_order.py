"""Commits of one client without a member: none overtakes an earlier one, which retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from leadline_client.client import AsyncClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.errors import CoordinatorNotAvailable
from leadline_client.transport import Request, Response
from leadline_client.wire import TopicPartition
from tests.support.services.zookeeper import until

PLACE = TopicPartition("t", 0)
COORDINATOR = {"coordinator": {"url": "http://coordinator", "epoch": 1}}
NOT_NOW = CoordinatorNotAvailable("not now")

Commit = Callable[[int], Awaitable[None]]


def answer(document: object, status: int = 200) -> Response:
    return Response(status, {}, json.dumps(document).encode())


class Coordinator:
    """Has the offset that was committed last; refuses so many commits before it takes any."""

    def __init__(self, refusals: int = 0) -> None:
        self.committed: list[tuple[str, int]] = []
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._refusals = refusals

    async def send(self, request: Request) -> Response:
        if request.url.endswith("/v1/consult"):
            return answer(COORDINATOR)
        self.asked += 1
        await self.may_answer.wait()
        if self._refusals:
            self._refusals -= 1
            return answer(NOT_NOW.body(), NOT_NOW.status)
        (row,) = json.loads(request.body)["offsets"]
        self.committed.append((request.url.split("/")[-2], row["offset"]))
        return answer({"offsets": [row | {"error_code": 0}]})

    async def aclose(self) -> None:
        """Do nothing."""


def by_client(client: AsyncClient) -> Commit:
    return lambda offset: client.commit_offsets("g", {PLACE: offset})


def by_consumer(client: AsyncClient) -> Commit:
    consumer = AsyncConsumer[bytes, bytes](client, "g")
    return lambda offset: consumer.commit({PLACE: offset})


@pytest.mark.parametrize("way", [by_client, by_consumer])
async def test_a_commit_that_is_retried_does_not_overwrite_a_later_one(
    way: Callable[[AsyncClient], Commit],
) -> None:
    coordinator = Coordinator(refusals=2)
    async with AsyncClient("http://seed", transport=coordinator) as client:
        commit = way(client)
        await asyncio.gather(*(commit(offset) for offset in (5, 7, 9)))
    assert coordinator.committed == [("g", 5), ("g", 7), ("g", 9)]


async def test_groups_do_not_wait_for_each_other() -> None:
    coordinator = Coordinator()
    coordinator.may_answer.clear()
    async with AsyncClient("http://seed", transport=coordinator) as client:
        commits = [
            asyncio.ensure_future(client.commit_offsets(group, {PLACE: 1})) for group in "ab"
        ]
        await until(lambda: coordinator.asked == 2, "both are under way")
        coordinator.may_answer.set()
        await asyncio.gather(*commits)


async def test_a_commit_does_not_wait_longer_than_its_limit_for_an_earlier_one() -> None:
    coordinator = Coordinator()
    coordinator.may_answer.clear()
    async with AsyncClient("http://seed", transport=coordinator) as client:
        first = asyncio.ensure_future(client.commit_offsets("g", {PLACE: 1}))
        await until(lambda: coordinator.asked == 1, "the first is under way")
        with pytest.raises(CoordinatorNotAvailable, match="nothing was sent"):
            await client.commit_offsets("g", {PLACE: 2}, timeout_s=0.05)
        coordinator.may_answer.set()
        await first
        await client.commit_offsets("g", {PLACE: 3})
    assert coordinator.committed == [("g", 1), ("g", 3)]


async def test_a_commit_that_is_given_up_lets_the_next_one_go() -> None:
    coordinator = Coordinator()
    coordinator.may_answer.clear()
    async with AsyncClient("http://seed", transport=coordinator) as client:
        first = asyncio.ensure_future(client.commit_offsets("g", {PLACE: 1}))
        await until(lambda: coordinator.asked == 1, "the first is under way")
        first.cancel()
        coordinator.may_answer.set()
        await client.commit_offsets("g", {PLACE: 2})
    assert coordinator.committed == [("g", 2)]
