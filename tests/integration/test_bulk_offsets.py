"""Offsets of the whole cluster at any of its brokers: in bulk, waiting, and past a dead one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from leadline_client.wire import NewTopic
from tests.support.faults.scenario import running_cluster
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC = "t"
BROKERS = (1, 2, 3)
ASSIGNMENT = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    """Each broker prefers to lead one partition, which has a record."""
    async with running_cluster() as running:
        await running.client.create_topic(NewTopic(TOPIC, replica_assignment=ASSIGNMENT))
        await running.in_sync(TOPIC, 3)
        for partition in ASSIGNMENT:
            await produce(running, partition)
        yield running


async def produce(cluster: Cluster, partition: int) -> None:
    leader = await cluster.leader_of(TOPIC, partition)
    path = f"/v1/topics/{TOPIC}/partitions/{partition}/records"
    answer = await cluster.post(leader, path, json={"records": [{"value": "v"}]})
    answer.raise_for_status()


async def offsets(cluster: Cluster, broker: int, **question: Any) -> list[dict[str, Any]]:
    body = {"topics": [TOPIC], **question}
    answer = await cluster.post(f"broker-{broker}", "/v1/offsets", json=body, timeout=30)
    rows: list[dict[str, Any]] = answer.raise_for_status().json()["partitions"]
    return rows


def watermarks(rows: list[dict[str, Any]]) -> list[int | None]:
    return [row["offsets"] and row["offsets"]["high_watermark"] for row in rows]


@pytest.mark.parametrize("asked", BROKERS)
async def test_any_broker_tells_the_offsets_of_all(cluster: Cluster, asked: int) -> None:
    rows = await offsets(cluster, asked, timestamp=-1)

    assert watermarks(rows) == [1, 1, 1]
    assert [row["leader"]["id"] for row in rows] == [1, 2, 3]
    assert [row["offsets"]["offset"] for row in rows] == [1, 1, 1]


@pytest.mark.parametrize("partition", ASSIGNMENT)
async def test_news_of_any_partition_ends_the_wait(cluster: Cluster, partition: int) -> None:
    before = watermarks(await offsets(cluster, 1))
    after = {TOPIC: {str(number): end for number, end in enumerate(before)}}
    waiting = asyncio.create_task(offsets(cluster, 1, after=after, wait_ms=20_000))

    await produce(cluster, partition)

    async with asyncio.timeout(15):
        rows = await waiting
    expected = [(end or 0) + (number == partition) for number, end in enumerate(before)]
    assert watermarks(rows) == expected


async def test_a_dead_leader_spoils_nothing_and_its_successor_is_found(cluster: Cluster) -> None:
    before = watermarks(await offsets(cluster, 1))
    await cluster.kill("broker-3")

    rows = await offsets(cluster, 1)
    assert watermarks(rows)[:2] == before[:2]
    # Where this took longer than the session of the dead lasts, its successor has answered.
    assert rows[2]["error_code"] == 50351 or watermarks(rows) == before

    async def told() -> bool:
        return watermarks(await offsets(cluster, 1)) == before

    await wait_until(told, "the successor's answer is passed on")
    epochs = f"/v1/topics/{TOPIC}/partitions/2/epochs/0"
    answer = await cluster.get(await cluster.leader_of(TOPIC, 2), epochs)
    assert answer.json()["end_offset"] == before[2]
    assert answer.json()["leader_epoch"] > 0
    cluster.restart("broker-3")
    await cluster.until_ready("broker-3")
