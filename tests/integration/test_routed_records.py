"""Records for any partition through any broker, past brokers that stop or freeze."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from leadline_client.murmur2 import partition_for_key
from leadline_client.wire import NewTopic
from tests.support.faults.scenario import running_cluster
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC = "t"
ASSIGNMENT = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
KEYS = [f"key-{number}" for number in range(30)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    """Each broker prefers to lead one partition."""
    async with running_cluster() as running:
        await running.client.create_topic(NewTopic(TOPIC, replica_assignment=ASSIGNMENT))
        await running.in_sync(TOPIC, 3)
        yield running


async def produce(cluster: Cluster, broker: int, keys: list[str], **query: Any) -> httpx.Response:
    records = {"records": [{"key": key, "value": f"{key} by {broker}"} for key in keys]}
    return await cluster.post(
        f"broker-{broker}", f"/v1/topics/{TOPIC}/records", json=records, params=query, timeout=60
    )


async def values(cluster: Cluster, broker: int, partition: int) -> list[str]:
    """Return the values of a partition, read through one broker."""
    path = f"/v1/topics/{TOPIC}/partitions/{partition}/records"
    answer = await cluster.get(f"broker-{broker}", path, offset=0, route="any")
    return [record["value"] for record in answer.raise_for_status().json()["records"]]


async def test_any_broker_serves_every_partition(cluster: Cluster) -> None:
    for broker in (1, 2, 3):
        answer = await produce(cluster, broker, KEYS)
        assert answer.status_code == 200
        rows = answer.json()["records"]
        assert [row["partition"] for row in rows] == [
            partition_for_key(key.encode(), 3) for key in KEYS
        ]

    for partition in ASSIGNMENT:
        mine = [key for key in KEYS if partition_for_key(key.encode(), 3) == partition]
        expected = [f"{key} by {broker}" for broker in (1, 2, 3) for key in mine]
        for broker in (1, 2, 3):
            assert await values(cluster, broker, partition) == expected


async def test_the_internal_routes_are_not_for_clients(cluster: Cluster) -> None:
    for path in ("append", "read", "offsets"):
        answer = await cluster.post("broker-1", f"/v1/internal/records/{path}", json={})
        assert answer.status_code == 404


async def test_a_frozen_leader_ends_a_request_by_its_deadline(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 1)
    other = 1 if leader != "broker-1" else 3
    key = next(key for key in KEYS if partition_for_key(key.encode(), 3) == 1)
    with cluster.frozen(leader):
        answer = await produce(cluster, other, [key], timeout_ms=500)

    assert (answer.status_code, answer.json()["outcome"]) in {(504, "unknown"), (503, "refused")}


async def test_a_request_outlives_the_leader(cluster: Cluster) -> None:
    """The records find the next leader: sent to a dead broker, they cannot be in doubt."""
    await wait_until(lambda: is_served(cluster), "every partition has its leader")
    leader = await cluster.leader_of(TOPIC, 2)
    other = next(broker for broker in (1, 2, 3) if f"broker-{broker}" != leader)
    before = len(await values(cluster, other, 2))
    key = next(key for key in KEYS if partition_for_key(key.encode(), 3) == 2)
    await cluster.kill(leader)

    answers = await asyncio.gather(*(produce(cluster, other, [key]) for _ in range(5)))

    # A connection that the dead broker had accepted leaves the first requests in doubt.
    sure = [answer for answer in answers if answer.status_code == 200]
    unsure = [answer for answer in answers if answer.status_code == 504]
    # Where a busy machine elects nobody in time, a request is refused.
    refused = [answer for answer in answers if answer.status_code == 503]
    assert {answer.json()["outcome"] for answer in refused} <= {"refused"}
    assert len(sure) + len(unsure) + len(refused) == 5, [answer.text for answer in answers]
    assert sure
    last = await produce(cluster, other, [key])
    assert last.status_code == 200
    found = await values(cluster, other, 2)
    assert before + len(sure) + 1 <= len(found) <= before + 6
    assert last.json()["records"][0]["offset"] == len(found) - 1


async def is_served(cluster: Cluster) -> bool:
    answer = await produce(cluster, 1, KEYS)
    return answer.status_code == 200
