"""Real processes among garbage: hostile requests and damaged nodes stop none of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from leadline_client.wire import NewTopic
from leadline_common import consumer_znodes, znodes
from leadline_common.zk.session import ZkSession
from tests.support.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.garbage import GARBAGE, write
from tests.support.services.cluster import CALM, Cluster, wait_until
from tests.support.services.up import command_line

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
GROUP = consumer_znodes.group_path("damaged")
CONSUMERS = (
    GROUP,
    consumer_znodes.ids_path("damaged"),
    f"{consumer_znodes.ids_path('damaged')}/m",
    consumer_znodes.owners_path("damaged"),
    f"{consumer_znodes.owners_path('damaged')}/t",
    consumer_znodes.offsets_path("damaged"),
    consumer_znodes.topic_offsets_path("damaged", "t"),
    consumer_znodes.offset_path("damaged", "t", 0),
    f"{consumer_znodes.topic_offsets_path('damaged', 't')}/x",
    f"{consumer_znodes.topic_offsets_path('damaged', 't')}/{'9' * 400}",
    f"{consumer_znodes.GROUPS}/%zz%2f",
)
OTHERS = (
    f"{znodes.TOPICS}/bad",
    f"{znodes.BROKER_IDS}/77",
    znodes.PRODUCER_ID_BLOCK,
    znodes.CONFIG_CLUSTER,
    znodes.broker_config_path(1),
    znodes.topic_config_path("t"),
    znodes.state_path("t", 1),
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper
) -> AsyncIterator[Cluster]:
    """Yield a cluster with a topic `t` of two partitions; no test ends a process of it."""
    path: Path = tmp_path_factory.mktemp("garbage")
    hosts = f"{zookeeper.hosts}/garbage-processes"
    async with Cluster(path, brokers=1, coordinators=1, zookeeper=hosts, settings=CALM) as started:
        await started.client.create_topic(NewTopic("t", 2, 1))
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def session(cluster: Cluster) -> AsyncIterator[ZkSession]:
    """Yield a ZooKeeper session of an operator."""
    async with cluster.zookeeper() as found:
        yield found


async def produce(cluster: Cluster, value: str) -> int:
    """Produce one record to `t-0`, idempotently, and return the offset."""
    answer = await cluster.post(
        "broker-1",
        "/v1/topics/t/partitions/0/records",
        params={"acks": "all", "timeout_ms": 10_000},
        json={"records": [{"value": value}], "format": "string"},
    )
    assert answer.status_code == 200, answer.text
    offset: int = answer.json()["base_offset"]
    return offset


async def epoch(cluster: Cluster) -> int:
    answer = await cluster.get("controller-1", "/v1/controller")
    found: int = answer.json()["controller"]["epoch"]
    return found


async def test_refused_text_that_cannot_be_encoded_deposes_no_controller(cluster: Cluster) -> None:
    """120 such requests, to controller and broker, while records are produced."""
    before, at = await epoch(cluster), {"topic": "\ud800x", "partition": 0}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("topics", {"name": "\ud800x"}),
        ("elections", {"type": "preferred", "partitions": [at]}),
        ("reassignments", {"partitions": [at | {"replicas": [1]}]}),
    ]
    stopped = asyncio.Event()

    async def load() -> int:
        number = 0
        while not stopped.is_set():
            await produce(cluster, str(number))
            number += 1
        return number

    producing = asyncio.create_task(load())
    for number in range(120):
        path, body = requests[number % len(requests)]
        answer = await cluster.post(
            ("controller-1", "broker-1")[number % 2],
            f"/v1/{path}",
            content=json.dumps(body),
            headers={"content-type": "application/json"},
        )
        assert answer.status_code >= 400, answer.text
    stopped.set()
    assert await producing > 0
    assert await epoch(cluster) == before
    await cluster.client.create_topic(NewTopic("after", 1, 1))


async def test_garbage_in_any_node_during_a_term(cluster: Cluster, session: ZkSession) -> None:
    before = await epoch(cluster)
    for number, garbage in enumerate(GARBAGE.values()):
        for path in (*CONSUMERS, *OTHERS):
            await write(session, path, garbage)
        await produce(cluster, "through")
        await cluster.client.new_producer_id()
        await cluster.client.create_topic(NewTopic(f"during-{number}", 1, 1))
        answer = await cluster.get("coordinator-1", "/v1/groups")
        assert answer.status_code == 200, answer.text
    assert await epoch(cluster) == before
    metrics = await cluster.get("controller-1", "/metrics")
    assert "leadline_controller_event_faults_total{" not in metrics.text


@pytest.mark.parametrize("kind", ["deep", "invalid UTF-8", "huge numbers"])
async def test_every_service_starts_among_garbage(
    cluster: Cluster, session: ZkSession, kind: str
) -> None:
    for path in (*CONSUMERS, *OTHERS[:-1]):
        await write(session, path, GARBAGE[kind])
    names = ("coordinator-1", "broker-1", "controller-1")
    for name in names:
        await cluster.terminate(name)
    for name in names:
        cluster.restart(name)
    for name in names:
        await cluster.until_ready(name)

    async def produced() -> bool:
        answer = await cluster.post(
            "broker-1",
            "/v1/topics/t/partitions/0/records",
            params={"acks": "all", "timeout_ms": 10_000},
            json={"records": [{"value": kind}], "format": "string"},
        )
        return answer.status_code == 200

    await wait_until(produced, "records are taken again")
    answer = await cluster.get("coordinator-1", "/v1/groups")
    assert answer.status_code == 200, answer.text
    assert all(cluster.child(name).running for name in names)


async def test_the_doctor_shows_what_a_controller_that_is_ready_reports(
    cluster: Cluster, session: ZkSession
) -> None:
    path = f"{znodes.TOPICS}/bad"
    await write(session, path, b"garbage")

    async def reported() -> bool:
        return path in (await cluster.get("controller-1", "/readyz")).text

    await wait_until(reported, "the controller has read the node")
    command = command_line("doctor", "--json", "--data-dir", str(cluster.data_dir))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 60)

    findings = {one["check"]: one for one in json.loads(output)["findings"]}
    found = findings["controller 1 reports no problem"]
    assert (process.returncode, found["ok"]) == (1, False)
    assert path in found["found"]
