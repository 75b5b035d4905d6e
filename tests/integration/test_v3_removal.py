"""Removing a broker by the v3 API: it is drained, stopped and unregistered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.support.services.cluster import CALM, Cluster, wait_until
from tests.support.v3.types import problems_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOVED = [{"partition_id": 0, "broker_ids": [3, 1]}, {"partition_id": 1, "broker_ids": [2, 3]}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Three brokers; the sessions are short, because one broker ends."""
    settings = CALM | {"zookeeper.session.timeout.ms": "4000"}
    async with Cluster(tmp_path_factory.mktemp("cluster"), settings=settings) as running:
        yield running


async def ask(cluster: Cluster, method: str, path: str, **options: Any) -> httpx.Response:
    path = f"/v3/clusters/{cluster.file.cluster_id}{path}"
    return await cluster.request(method, "broker-1", path, **options)


async def test_a_broker_is_drained_stopped_and_unregistered(cluster: Cluster) -> None:
    base = cluster.url("broker-1") + "/v3"
    topic = {"topic_name": "moved", "replicas_assignments": MOVED}
    assert (await ask(cluster, "POST", "/topics", json=topic)).status_code == 201
    early = await ask(cluster, "POST", "/brokers/3:unregister")
    assert (early.status_code, early.json()["error_code"]) == (400, 40002)
    removal = await ask(cluster, "DELETE", "/brokers/3", params={"should_shutdown": "true"})
    assert removal.status_code == 202, removal.text
    assert problems_of(removal.json(), "BrokerRemoval", base) == []
    link = removal.json()["broker_task"]["related"].removeprefix(base)
    again = await ask(cluster, "POST", "/brokers:delete", json={"broker_ids": [3]})
    assert (again.status_code, again.json()["error_code"]) == (400, 40002)

    async def done() -> dict[str, Any] | None:
        answer = await cluster.get("broker-2", f"/v3{link}")
        assert problems_of(answer.json(), "BrokerTask", cluster.url("broker-2") + "/v3") == []
        task: dict[str, Any] = answer.json()
        return task if task["task_status"] != "IN_PROGRESS" else None

    task = await wait_until(done, "the broker is drained")
    assert (task["task_status"], task["task_type"]) == ("SUCCESS", "remove-broker")
    [listed] = (await ask(cluster, "GET", "/brokers/-/tasks")).json()["data"]
    assert listed["broker_id"] == 3
    assert (await ask(cluster, "GET", "/brokers/3/partition-replicas")).json()["data"] == []
    await unregister_stopped(cluster)


async def unregister_stopped(cluster: Cluster) -> None:
    await cluster.kill("broker-3")

    async def unregistered() -> httpx.Response | None:
        answer = await ask(cluster, "POST", "/brokers/3:unregister")
        return answer if answer.status_code == 202 else None

    answer = await wait_until(unregistered, "the broker is known to be down")
    assert answer.json() == {"cluster_id": cluster.file.cluster_id, "broker_id": 3}
    assert (await ask(cluster, "GET", "/brokers/3")).status_code == 404
    assert len((await ask(cluster, "GET", "/brokers")).json()["data"]) == 2
