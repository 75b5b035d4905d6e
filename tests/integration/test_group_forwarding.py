"""Consumer groups through any broker, for clients that know or reach brokers only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from leadline_client.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    UnknownGroup,
    UnknownMember,
    UnsupportedFormat,
)
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROW = {"topic": "orders", "partition": 0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("forwarding")
    async with Cluster(directory, brokers=2, coordinators=1) as running:
        await running.client.create_topic(NewTopic("orders", 1, 2))
        await running.client.produce("orders", 0, [OutgoingRecord(b"one")] * 9)
        await running.active_coordinator()
        yield running


async def ask(cluster: Cluster, method: str, broker: str, path: str, **how: Any) -> httpx.Response:
    return await cluster.request(method, broker, f"/v1/groups{path}", **how)


@pytest.mark.parametrize("broker", ["broker-1", "broker-2"])
async def test_defect_23_groups_through_any_broker(cluster: Cluster, broker: str) -> None:
    async def is_known() -> bool:
        answer = await ask(cluster, "GET", broker, "")
        return answer.status_code == httpx.codes.OK

    await wait_until(is_known, f"{broker} knows the coordinator")
    group = f"/through-{broker}"
    committed = await ask(
        cluster, "POST", broker, f"{group}/offsets", json={"offsets": [ROW | {"offset": 4}]}
    )
    assert committed.json()["offsets"][0]["error_code"] == 0
    listed = (await ask(cluster, "GET", broker, "")).json()["groups"]
    assert group[1:] in [one["group"] for one in listed]
    assert (await ask(cluster, "GET", broker, group)).json()["state"] == "empty"
    lag = (await ask(cluster, "GET", broker, f"{group}/lag")).json()
    assert (lag["partitions"][0]["committed"], lag["total"]) == (4, 5)
    reset = await ask(cluster, "POST", broker, f"{group}/offsets/reset", json={"to": "latest"})
    assert reset.json()["offsets"] == [ROW | {"previous": 4, "offset": 9}]
    offsets = (await ask(cluster, "GET", broker, f"{group}/offsets")).json()["offsets"]
    assert [one["offset"] for one in offsets] == [9]
    assert (await ask(cluster, "POST", broker, f"{group}/rebalance")).status_code == httpx.codes.OK
    evicted = await ask(cluster, "DELETE", broker, f"{group}/members/nobody")
    assert evicted.json()["error_code"] == UnknownMember.code

    async def is_deleted() -> bool:
        """The rebalance has to be over first."""
        return (await ask(cluster, "DELETE", broker, group)).status_code == httpx.codes.OK

    await wait_until(is_deleted, "the group is deleted")
    assert (await ask(cluster, "GET", broker, group)).json()["error_code"] == UnknownGroup.code


async def test_defect_23_what_the_coordinator_refuses_is_refused_through_a_broker_too(
    cluster: Cluster,
) -> None:
    cause = {"X-Leadline-Cause": "asked-for"}
    broken = await ask(
        cluster, "POST", "broker-1", "/g/offsets", json={"offsets": []}, headers=cause
    )
    text = await ask(cluster, "POST", "broker-1", "/g/offsets", content=b"{}")
    reset = await ask(cluster, "POST", "broker-1", "/g/offsets/reset", json={"to": "nowhere"})
    answers = (broken, text, reset)
    codes = [InvalidRequest.code, UnsupportedFormat.code, InvalidRequest.code]
    assert [answer.json()["error_code"] for answer in answers] == codes
    assert {answer.json()["outcome"] for answer in answers} == {"refused"}
    assert broken.headers["X-Leadline-Cause"] == "asked-for"


async def test_defect_23_without_a_coordinator_brokers_ask_to_try_again(cluster: Cluster) -> None:
    await cluster.terminate("coordinator-1")
    try:

        async def is_unavailable() -> bool:
            answer = await ask(cluster, "GET", "broker-2", "")
            return bool(answer.status_code == httpx.codes.SERVICE_UNAVAILABLE)

        await wait_until(is_unavailable, "the broker has seen it go")
        commit = {"offsets": [ROW | {"offset": 4}]}
        answers = [
            await ask(cluster, "GET", "broker-2", ""),
            await ask(cluster, "POST", "broker-2", "/g/offsets", json=commit),
            await ask(cluster, "DELETE", "broker-2", "/g"),
        ]
        for answer in answers:
            body = answer.json()
            assert body["error_code"] == CoordinatorNotAvailable.code
            assert (body["outcome"], body["retriable"]) == ("refused", True)
            assert answer.headers["Retry-After"]
    finally:
        cluster.restart("coordinator-1")
        await cluster.until_ready("coordinator-1")
