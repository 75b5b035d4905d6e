"""Bad input to each endpoint: the documented code, Leadline's error format, and no change."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Final

import httpx
import pytest
import pytest_asyncio

from leadline_client.wire import NewTopic
from leadline_common import rpc, staged_copies
from leadline_common.identity import ServiceIdentity
from tests.support.bad_input.requests import (
    ADMINISTRATION,
    FETCH,
    HEARTBEAT,
    INTERNAL,
    MESSAGE_MAX_BYTES,
    NOT_LEADER,
    OTHERS,
    PRODUCE,
    REQUEST_MAX_BYTES,
    batch,
    leader_and_isr,
    stop_replica,
)
from tests.support.bad_input.table import JSON, Bad, Everything, everything, send
from tests.support.faults.scenario import running_cluster
from tests.support.services.cluster import CALM, Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPEAKERS: Final[Mapping[str, ServiceIdentity]] = {
    **dict.fromkeys(
        (rpc.LEADER_AND_ISR_PATH, rpc.STOP_REPLICA_PATH, rpc.UPDATE_METADATA_PATH),
        ServiceIdentity("controller", 1),
    ),
    **dict.fromkeys(
        (
            rpc.REPLICA_FETCH_PATH,
            rpc.HEARTBEAT_PATH,
            staged_copies.KEEP_STAGED_PATH,
            staged_copies.DROP_STAGED_PATH,
            staged_copies.READ_STAGED_PATH,
        ),
        ServiceIdentity("broker", 1),
    ),
}
"""Who sends the requests to the internal listeners."""

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Certificates are not needed here, and loading them takes longer than a request."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    settings = {
        **CALM,
        # Broker 2 leads where broker 1 is preferred, and nothing may change by itself.
        "auto.leader.rebalance.enable": "false",
        "message.max.bytes": str(MESSAGE_MAX_BYTES),
        "request.max.bytes": str(REQUEST_MAX_BYTES),
    }
    async with running_cluster(controllers=2, settings=settings) as running:
        topic = NewTopic("t", replica_assignment={0: (1, 2, 3)})
        await running.client.create_topic(topic)
        # Broker 1 comes back as a follower: broker 2 leads in an epoch above 0.
        await running.terminate("broker-1")
        await running.leader_of("t", 0, not_in=["broker-1"])
        running.restart("broker-1")
        await running.in_sync("t", 3)
        await running.client.produce_batches("t", 0, batch(numbered=True), idempotent=True)
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def seen(cluster: Cluster) -> list[Everything]:
    """Looks at everything, one after each request; the first was taken when all was at rest."""
    last: list[Everything] = []

    async def at_rest() -> bool:
        last.append(await everything(cluster))
        ends = {row["high_watermark"] for rows in last[-1].replicas.values() for row in rows}
        told = {str(document) for document in last[-1].metadata.values()}
        calm = len(last) > 1 and last[-1] == last[-2]
        return calm and ends == {2} and len(told) == 1

    await wait_until(at_rest, "the cluster is at rest")
    return last


async def nothing_changed(cluster: Cluster, seen: list[Everything]) -> None:
    """Compare with the last look; a change is held against one request only."""
    seen.append(await everything(cluster))
    assert seen[-1] == seen[-2]


async def check(cluster: Cluster, door: str, bad: Bad, seen: list[Everything]) -> None:
    """Send a bad request to a service and look at the answer and at what is left."""
    if bad.path in SPEAKERS:
        speaker, options = SPEAKERS[bad.path], {"content": bad.content, "headers": bad.headers}
        answer = await cluster.post_internally(door, bad.path, caller=speaker, **options)
    else:
        async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as http:
            answer = await send(http, cluster.url(door), bad)
    assert answer.headers["content-type"].startswith("application/json"), answer.text
    body = answer.json()
    assert (answer.status_code, body["error_code"]) == (bad.status, bad.code), answer.text
    assert body["outcome"] == "refused"
    assert isinstance(body["message"], str)
    assert body["message"]
    assert bad.says in answer.text
    assert answer.headers["x-leadline-cause"]
    for leak in ("Traceback", "/work", "site-packages", "pydantic", "msgspec"):
        assert leak not in answer.text
    await nothing_changed(cluster, seen)


@pytest.mark.parametrize("bad", PRODUCE, ids=str)
async def test_produce(cluster: Cluster, seen: list[Everything], bad: Bad) -> None:
    await check(cluster, "broker-2", bad, seen)


@pytest.mark.parametrize("bad", FETCH, ids=str)
async def test_fetch(cluster: Cluster, seen: list[Everything], bad: Bad) -> None:
    await check(cluster, "broker-2", bad, seen)


@pytest.mark.parametrize("bad", OTHERS, ids=str)
async def test_other_questions_to_a_broker(
    cluster: Cluster, seen: list[Everything], bad: Bad
) -> None:
    await check(cluster, "broker-2", bad, seen)


@pytest.mark.parametrize("bad", NOT_LEADER, ids=str)
async def test_not_the_leader(cluster: Cluster, seen: list[Everything], bad: Bad) -> None:
    await check(cluster, "broker-3", bad, seen)


@pytest.mark.parametrize("bad", INTERNAL, ids=str)
async def test_internal_routes_of_a_broker(
    cluster: Cluster, seen: list[Everything], bad: Bad
) -> None:
    await check(cluster, "broker-2", bad, seen)


@pytest.mark.parametrize("door", ["active controller", "standby controller", "broker"])
@pytest.mark.parametrize("bad", ADMINISTRATION, ids=str)
async def test_administration(
    cluster: Cluster, seen: list[Everything], bad: Bad, door: str
) -> None:
    active = await cluster.active_controller()
    standby = "controller-1" if active == "controller-2" else "controller-2"
    doors = {"active controller": active, "standby controller": standby, "broker": "broker-1"}
    await check(cluster, doors[door], bad, seen)


@pytest.mark.parametrize("bad", HEARTBEAT, ids=str)
async def test_heartbeats(cluster: Cluster, seen: list[Everything], bad: Bad) -> None:
    await check(cluster, await cluster.active_controller(), bad, seen)


async def test_orders_about_single_replicas_that_do_not_hold(
    cluster: Cluster, seen: list[Everything]
) -> None:
    """Rows are refused one by one, within an answer that is a success (rule R1)."""
    view = seen[-1].zookeeper
    controller = int((await cluster.active_controller()).rpartition("-")[2])
    identity = {
        "controller_id": controller,
        "controller_epoch": view.controller_epoch,
        "incarnation": view.brokers[2].incarnation,
    }
    topic_id = view.topics["t"].topic_id
    old_role = [0, 2, 0, [2], [1, 2, 3], 0]
    orders = [
        (
            rpc.LEADER_AND_ISR_PATH,
            leader_and_isr(**identity, is_init=False, topics=[["t", topic_id, {}, [old_role]]]),
            40951,
        ),
        (
            rpc.STOP_REPLICA_PATH,
            stop_replica(**identity, topics=[["t", topic_id, [[0, 0]]]]),
            40951,
        ),
        # Of another topic id there is nothing to stop: done, and nothing of this one is touched.
        (
            rpc.STOP_REPLICA_PATH,
            stop_replica(**identity, topics=[["t", "f" * 32, [[0, 99]]]]),
            0,
        ),
    ]
    for path, content, code in orders:
        answer = await cluster.post_internally(
            "broker-2",
            path,
            caller=ServiceIdentity("controller", controller),
            content=content,
            headers=JSON,
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["codes"] == [[code]]
    await nothing_changed(cluster, seen)
