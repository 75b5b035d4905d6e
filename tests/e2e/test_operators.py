"""What operators rely on, with real processes: settings take effect live, requests once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from leadline_client.wire import NewTopic
from tests.support.faults.scenario import running_cluster
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORDS = "/v1/topics/t/partitions/0/records"
LARGE = {"records": [{"value": "x" * 20_000}]}
SMALL = {"records": [{"value": "x"}]}
ACCEPTED = 200
SIZES = {
    "cluster": "message.max.bytes",
    "broker": "message.max.bytes",
    "topic": "max.message.bytes",
}
PATHS = {
    "cluster": "/v1/configs",
    "broker": "/v1/brokers/1/configs",
    "topic": "/v1/topics/t/configs",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster(controllers=2) as running:
        await running.client.create_topic(NewTopic("t", replica_assignment={0: (1, 2)}))
        yield running


async def alter(cluster: Cluster, level: str, **change: Any) -> None:
    """Change settings through a broker, which passes it on."""
    answer = await cluster.request("PATCH", "broker-3", PATHS[level], json=change)
    assert answer.status_code == 200, answer.text


async def is_answered(cluster: Cluster, body: Any, code: int) -> None:
    """Wait until the leader answers a produce request with a code (200 or an error's)."""

    async def answered() -> bool:
        params = {"acks": "all", "timeout_ms": 1_000}
        answer = await cluster.post("broker-1", RECORDS, json=body, params=params)
        return bool(answer.json().get("error_code", answer.status_code) == code)

    await wait_until(answered, f"the answer is {code}")


async def test_the_closest_setting_takes_effect_without_a_restart(cluster: Cluster) -> None:
    """Refused by the cluster's, accepted by the broker's, refused by the topic's; and back."""
    await is_answered(cluster, LARGE, ACCEPTED)
    for level, size, code in (
        ("cluster", 2_000, 41350),
        ("broker", 50_000, ACCEPTED),
        ("topic", 3_000, 41350),
    ):
        await alter(cluster, level, set={SIZES[level]: size})
        await is_answered(cluster, LARGE, code)
    for level, code in (("topic", ACCEPTED), ("broker", 41350), ("cluster", ACCEPTED)):
        await alter(cluster, level, remove=[SIZES[level]])
        await is_answered(cluster, LARGE, code)


async def test_fewer_in_sync_replicas_suffice_as_soon_as_the_cluster_says_so(
    cluster: Cluster,
) -> None:
    await cluster.kill("broker-2")
    await is_answered(cluster, SMALL, 50352)
    await alter(cluster, "cluster", set={"min.insync.replicas": 1})
    await is_answered(cluster, SMALL, ACCEPTED)
    await alter(cluster, "cluster", remove=["min.insync.replicas"])
    await is_answered(cluster, SMALL, 50352)
    cluster.restart("broker-2")
    await cluster.in_sync("t", 2)


async def test_a_request_that_is_repeated_over_a_failover_is_done_once(cluster: Cluster) -> None:
    """By another broker, to another controller: the first answer is given again."""
    body = {"name": "once", "partitions": 3, "replication_factor": 2}
    headers = {"Idempotency-Key": "create-once"}

    async def create(broker: str) -> httpx.Response:
        return await cluster.post(broker, "/v1/topics", json=body, headers=headers)

    first = await create("broker-1")
    assert first.status_code == 201, first.text
    active = await cluster.active_controller()
    await cluster.kill(active)
    await cluster.active_controller(not_in=[active])
    answers: list[httpx.Response] = []

    async def answered() -> bool:
        answers.append(await create("broker-3"))
        return answers[-1].status_code != 503  # until the broker has heard of the new controller

    await wait_until(answered, "somebody answers")
    assert (answers[-1].status_code, answers[-1].content) == (201, first.content)
    assert answers[-1].headers["idempotency-replayed"] == "true"
    other = await cluster.post(
        "broker-3", "/v1/topics", json={**body, "name": "x"}, headers=headers
    )
    assert other.json()["error_code"] == 42250


async def test_changes_are_followed_at_any_broker(cluster: Cluster) -> None:
    """The stream comes through the broker as it happens."""
    url = cluster.url("broker-2") + "/v1/events"
    async with (
        httpx.AsyncClient(trust_env=False, timeout=20) as http,
        http.stream("GET", url, headers={"Accept": "text/event-stream"}) as answer,
    ):
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith(":")
        await cluster.client.create_topic(NewTopic("followed", 1, 1))
        async for line in lines:
            if line.startswith("data: ") and '"topic":"followed"' in line:
                return
    pytest.fail("the stream ended")
