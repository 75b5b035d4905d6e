"""Exactly once by stage and publish, on real brokers that are killed -9 in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from leadline_client import batches
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.faults.scenario import rounds, running_cluster
from tests.support.services.cluster import Cluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

APP = "nightly"
OCTETS = {"content-type": "application/octet-stream"}
PADDING = b"x" * 20_000


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    # Followers fetch a piece or two at a time: who is killed leaves batches half replicated.
    settings = {"log.segment.bytes": str(1 << 20), "replica.fetch.max.bytes": str(32 * 1024)}
    async with running_cluster(settings=settings) as running:
        yield running


class App:
    """An application that publishes to partition 0 of a topic of its own, as a Spark job does."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.path = f"/v1/topics/{topic}/partitions/0"

    async def begin(self) -> None:
        await self.cluster.client.create_topic(NewTopic(self.topic, 1, 3))
        await self.cluster.in_sync(self.topic, 3)

    async def leader(self) -> str:
        return await self.cluster.leader_of(self.topic, 0)

    async def stage(
        self, leader: str, batch: int, *, uploads: int = 2, pieces: int = 4
    ) -> list[str]:
        """Stage the records of a batch, always the same ones; return the ids."""
        ids = []
        for upload in range(uploads):
            content = b"".join(
                batches.encode([OutgoingRecord(value.encode(), key=PADDING)], now_ms=1_000)
                for value in self.values(batch)[upload * pieces : (upload + 1) * pieces]
            )
            answer = await self.cluster.post(
                leader, self.path + "/staged", content=content, headers=OCTETS
            )
            assert answer.status_code == 201, answer.text
            ids.append(answer.json()["staged_id"])
        return ids

    @staticmethod
    def values(batch: int) -> list[str]:
        return [f"{batch}-{number}" for number in range(8)]

    async def publish(self, leader: str, batch: int, staged: list[str]) -> httpx.Response:
        body = {"app": APP, "batch": batch, "staged": staged, "timeout_ms": 4_000}
        return await self.cluster.post(leader, self.path + "/publish", json=body)

    async def publish_somehow(self, batch: int) -> dict[str, Any]:
        """Stage and publish at whoever leads until it is done, as a driver that starts again."""

        async def done() -> dict[str, Any] | None:
            leader = await self.leader()
            try:
                staged = await self.stage(leader, batch)
                answer = await self.publish(leader, batch, staged)
            except (httpx.HTTPError, AssertionError):
                return None  # Dead, or not the leader yet.
            found: dict[str, Any] = answer.json()
            assert answer.status_code not in (400, 409), found
            return found if answer.status_code == 200 else None

        return await wait_until(done, f"batch {batch} is published")

    async def read(self) -> list[str]:
        """Return the values of the whole partition."""
        leader = await self.leader()
        found: list[str] = []
        while True:
            answer = await self.cluster.get(
                leader, self.path + "/records", offset=len(found), format="string"
            )
            rows = answer.raise_for_status().json()["records"]
            if not rows:
                return found
            found += [row["value"] for row in rows]


async def restarted(cluster: Cluster, *names: str) -> None:
    """Bring killed brokers back."""
    for name in names:
        cluster.restart(name)
    for name in names:
        await cluster.until_ready(name)


async def test_a_batch_survives_its_leader_and_is_known_to_the_next(cluster: Cluster) -> None:
    app = App(cluster, "survives")
    await app.begin()
    leader = await app.leader()
    staged = await app.stage(leader, 0)
    first = (await app.publish(leader, 0, staged)).raise_for_status().json()
    assert (first["base_offset"], first["last_offset"], first["duplicate"]) == (0, 7, False)
    waiting = await app.stage(leader, 1)

    await cluster.kill(leader)
    successor = await cluster.leader_of(app.topic, 0, not_in=[leader])

    async def published(batch: int, ids: list[str]) -> dict[str, Any] | None:
        answer = await app.publish(successor, batch, ids)
        return answer.json() if answer.status_code == 200 else None

    again = await wait_until(lambda: published(0, staged), "the successor knows the batch")
    assert (again["base_offset"], again["last_offset"], again["duplicate"]) == (0, 7, True)
    lost = await app.publish(successor, 1, staged)
    assert (lost.status_code, lost.json()["error_code"]) == (404, 40452)
    other = await wait_until(lambda: published(1, waiting), "what was staged before is published")
    assert (other["base_offset"], other["last_offset"]) == (8, 15)
    await restarted(cluster, leader)
    assert await app.read() == app.values(0) + app.values(1)


@rounds(3)
async def test_leaders_killed_while_they_publish_lose_and_double_nothing(
    cluster: Cluster, rounds: int
) -> None:
    app = App(cluster, f"killed-{rounds}")
    await app.begin()
    for batch in range(rounds):
        await cluster.in_sync(app.topic, 3)
        leader = await app.leader()
        staged = await app.stage(leader, batch)
        publishing = asyncio.create_task(app.publish(leader, batch, staged))
        await asyncio.sleep(0.003 * (batch % 8))  # The fault: at another point each time.
        await cluster.kill(leader)
        await asyncio.gather(publishing, return_exceptions=True)
        await cluster.leader_of(app.topic, 0, not_in=[leader])
        await app.publish_somehow(batch)
        assert (await app.publish_somehow(batch))["duplicate"]
        await restarted(cluster, leader)

    assert await app.read() == [value for batch in range(rounds) for value in app.values(batch)]


async def test_a_cluster_that_was_killed_as_a_whole_knows_its_batches(cluster: Cluster) -> None:
    app = App(cluster, "all")
    await app.begin()
    for batch in (0, 4):
        await app.publish_somehow(batch)
    names = [broker.name for broker in cluster.supervisor.layout.brokers]
    await asyncio.gather(*(cluster.kill(name) for name in names))
    await restarted(cluster, *names)

    latest, earlier = await app.publish_somehow(4), await app.publish_somehow(0)

    assert (latest["base_offset"], latest["last_offset"], latest["duplicate"]) == (8, 15, True)
    assert earlier["duplicate"]
    assert await app.read() == app.values(0) + app.values(4)


async def test_uploads_are_on_the_leader_s_disk_and_survive_its_restart(cluster: Cluster) -> None:
    await cluster.client.create_topic(NewTopic("kept", replica_assignment={0: (1,)}))
    app = App(cluster, "kept")
    await cluster.in_sync("kept", 1)
    before = {"records": [{"value": "before"}]}
    (await cluster.post("broker-1", app.path + "/records", json=before)).raise_for_status()
    staged = await app.stage("broker-1", 0)

    await cluster.kill("broker-1")
    await restarted(cluster, "broker-1")

    async def published() -> bool:
        return (await app.publish("broker-1", 0, staged)).status_code == 200

    await wait_until(published, "what was staged before the restart is published")
    assert await app.read() == ["before", *app.values(0)]
