"""Metadata by its changes, at real brokers: a failover of many topics, deletion, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from leadline_client import AsyncClient, NewTopic
from tests.support.services.cluster import Cluster, wait_until

TOPICS: Final = 210
AT_ONCE: Final = 10


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, brokers=3, controllers=2) as running:
        yield running


class Reader:
    """Asks brokers for the metadata, and counts the bytes of the answers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.etag = ""

    async def whole(self, name: str) -> httpx.Response:
        answer = await self._cluster.get(name, "/v1/metadata")
        assert answer.is_success
        self.etag = answer.headers["etag"]
        return answer

    async def changes(self, name: str) -> httpx.Response:
        answer = await self._cluster.get(name, "/v1/metadata", changed_after=self.etag)
        assert answer.is_success
        return answer


def size(answer: httpx.Response) -> int:
    return len(answer.content)


async def create(client: AsyncClient, names: list[str], replicas: tuple[int, ...]) -> None:
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        new = (NewTopic(name, replica_assignment={0: replicas}) for name in some)
        await asyncio.gather(*map(client.create_topic, new))


async def same(cluster: Cluster, *names: str) -> None:
    """Wait until these services show the same state."""

    async def agree() -> bool:
        answers = [await cluster.get(name, "/v1/metadata") for name in names]
        return len({answer.headers.get("etag") for answer in answers}) == 1

    await wait_until(agree, "all show the same metadata")


async def test_a_failover_ships_what_has_changed(cluster: Cluster) -> None:
    few = [f"few-{number}" for number in range(10)]
    await create(cluster.client, [f"t{number:03}" for number in range(TOPICS - len(few))], (2, 3))
    await create(cluster.client, few, (1, 2))
    await same(cluster, "broker-1", "broker-2", "broker-3", "controller-1")
    reader = Reader(cluster)
    before = await reader.whole("broker-1")
    assert len(before.json()["topics"]) >= TOPICS
    async with AsyncClient([cluster.url("broker-2")]) as client:
        assert (await client.metadata()).topics["few-0"].partitions[0].leader == 1
        await cluster.kill("broker-1")

        async def moved() -> bool:
            rows = (await cluster.get("broker-2", "/v1/metadata")).json()
            return len(rows["brokers"]) == 2 and all(
                topic["partitions"][0][1] in (2, 3) for topic in rows["topics"].values()
            )

        await wait_until(moved, "the topics have other leaders")
        # The broker that answers is another one, and has served the state, or went over it.
        answer = await reader.changes("broker-2")
        found = answer.json()
        assert found["changed_after"] in reader.etag
        assert found["changed_rows"].keys() | found["topics"].keys() == set(few)
        assert size(answer) * 8 < size(await Reader(cluster).whole("broker-2"))
        assert (await client.metadata()).topics["few-0"].partitions[0].leader == 2


async def test_deleted_and_recreated_topics_and_a_restarted_broker(cluster: Cluster) -> None:
    await create(cluster.client, ["kept", "recreated", "deleted"], (1, 2, 3))
    async with AsyncClient([cluster.url("broker-1")]) as client:
        before = await client.metadata()
        reader = Reader(cluster)
        await reader.whole("broker-1")
        for name in ("recreated", "deleted"):
            await cluster.client.delete_topic(name)
        await wait_until(lambda: _are_gone(cluster, "recreated", "deleted"), "they are gone")
        await create(cluster.client, ["recreated"], (1, 2, 3))
        await same(cluster, "broker-1", "broker-2", "controller-1", "controller-2")
        for source in ("broker-1", "broker-2", "controller-1", "controller-2"):
            found: dict[str, Any] = (await reader.changes(source)).json()
            assert list(found["topics"]) == ["recreated"]
            assert found["deleted_topics"] == ["deleted"]
            assert found["topics"]["recreated"]["topic_id"] != before.topics["recreated"].topic_id
        after = await client.metadata()
        assert after.topics.keys() == before.topics.keys() - {"deleted"}
        assert after.topics["recreated"].topic_id == found["topics"]["recreated"]["topic_id"]
        await _whole_after_a_restart(cluster, reader)
        assert (await client.metadata()).topics.keys() == after.topics.keys()


async def _are_gone(cluster: Cluster, *names: str) -> bool:
    rows = (await cluster.get("controller-1", "/v1/topics")).json()["topics"]
    return not {row["name"] for row in rows} & set(names)


async def _whole_after_a_restart(cluster: Cluster, reader: Reader) -> None:
    """A broker that has restarted does not know what changed before, another one does."""
    assert await cluster.terminate("broker-1") == 0
    cluster.restart("broker-1")
    await cluster.until_ready("broker-1")
    assert "changed_after" not in (await reader.changes("broker-1")).json()
    assert "changed_after" in (await reader.changes("broker-2")).json()
