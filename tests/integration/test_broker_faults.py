"""Brokers as processes in a real cluster: kills, pauses, restarts, and what must survive them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from leadline_client.errors import NoController
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until

TOPIC = "t"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as running:
        await running.client.create_topic(NewTopic(TOPIC, 3, 3))
        await running.in_sync(TOPIC, 3)
        yield running


async def send(cluster: Cluster, broker: str, value: str, partition: int = 0) -> int:
    """Produce one record with acks=all and return its offset."""
    answer = await cluster.post(
        broker,
        f"/v1/topics/{TOPIC}/partitions/{partition}/records",
        params={"acks": "all", "timeout_ms": 4_000},
        json={"records": [{"value": value}], "format": "string"},
    )
    assert answer.status_code == 200, answer.text
    offset: int = answer.json()["base_offset"]
    return offset


async def read(cluster: Cluster, broker: str, partition: int = 0) -> list[str]:
    """Return all committed values."""
    found: list[str] = []
    offset = 0
    while True:
        answer = await cluster.get(
            broker,
            f"/v1/topics/{TOPIC}/partitions/{partition}/records",
            offset=offset,
            format="string",
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()
        found += [record["value"] for record in body["records"]]
        if body["next_offset"] == offset:
            return found
        offset = body["next_offset"]


async def this_broker(cluster: Cluster, name: str) -> dict[str, object]:
    document: dict[str, object] = (await cluster.get(name, "/v1/broker")).json()
    return document


async def test_a_killed_leader_takes_no_acknowledged_record_along(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    for number in range(20):
        await send(cluster, leader, f"v{number}")

    await cluster.kill(leader)
    successor = await cluster.leader_of(TOPIC, 0, not_in=[leader])

    async def accepted() -> bool:
        try:
            await send(cluster, successor, "after")
        except AssertionError:
            return False
        return True

    await wait_until(accepted, "the new leader serves")
    values = await read(cluster, successor)
    assert values[:20] == [f"v{number}" for number in range(20)]
    cluster.restart(leader)
    await cluster.in_sync(TOPIC, 3)


async def test_a_restart_before_the_session_ends_is_a_new_incarnation(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    await send(cluster, leader, "before")
    incarnation = (await this_broker(cluster, leader))["incarnation"]
    epoch = (await cluster.client.describe(TOPIC)).partitions[0].leader_epoch

    await cluster.kill(leader)
    cluster.restart(leader)
    await cluster.until_ready(leader)

    assert incarnation == 1
    assert (await this_broker(cluster, leader))["incarnation"] == 2
    await cluster.in_sync(TOPIC, 3)
    row = (await cluster.client.describe(TOPIC)).partitions[0]
    assert row.leader_epoch > epoch
    assert await read(cluster, f"broker-{row.leader}") == ["before"]


async def test_a_broker_that_was_told_nothing_yet_does_not_say_that_there_is_nothing(
    cluster: Cluster,
) -> None:
    await cluster.kill("controller-1")
    await cluster.kill("broker-1")
    cluster.restart("broker-1")

    async def answer() -> httpx.Response | None:
        try:
            return await cluster.get("broker-1", "/v1/metadata")
        except httpx.TransportError:
            return None  # not up yet

    first = await wait_until(answer, "the broker answers")
    assert (first.status_code, first.json()["error_code"]) == (503, NoController.code)
    cluster.restart("controller-1")

    async def is_told() -> bool:
        known = await cluster.get("broker-1", "/v1/metadata")
        return known.status_code == 200 and TOPIC in known.json()["topics"]

    await wait_until(is_told, "the broker is told")


async def test_a_clean_stop_leaves_nothing_to_recover(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    await send(cluster, leader, "v")

    assert await cluster.terminate(leader) == 0
    log = cluster.log(leader)
    cluster.restart(leader)
    await cluster.until_ready(leader)

    assert '"event": "logs closed"' in log
    opened = [
        json.loads(line)
        for line in cluster.log(leader).splitlines()
        if '"event": "logs opened"' in line
    ][-1]
    assert (opened["clean_incarnation"], opened["scanned_bytes"]) == (1, 0)


async def test_a_leader_that_was_frozen_past_its_session_serves_nothing_stale(
    cluster: Cluster,
) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    await send(cluster, leader, "v")
    cluster.pause(leader)
    successor = await cluster.leader_of(TOPIC, 0, not_in=[leader])

    cluster.resume(leader)
    with pytest.raises(AssertionError, match=r"BrokerFenced|50353|42150|50351"):
        await send(cluster, leader, "stale")

    await cluster.until_ready(leader)
    await cluster.in_sync(TOPIC, 3)
    assert await read(cluster, successor) == ["v"]
    assert (await this_broker(cluster, leader))["incarnation"] == 2


async def test_records_of_a_deleted_topic_leave_every_disk(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    await send(cluster, leader, "v")

    await cluster.client.delete_topic(TOPIC)

    async def gone() -> bool:
        return not list(cluster.data_dir.glob(f"broker-*/{TOPIC}-*"))

    await wait_until(gone, "the directories are gone")


async def test_a_foreign_log_directory_is_refused(cluster: Cluster) -> None:
    argv = list(cluster.service("broker-1").argv)
    await cluster.kill("broker-1")
    argv[argv.index("broker.id=1")] = "broker.id=7"

    ended = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 1
    assert "belongs to broker 1" in ended.stderr + ended.stdout
