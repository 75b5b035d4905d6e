"""What a broker answers before it has opened its logs: BrokerFenced, whichever part is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from leadline_broker.main import openapi_app
from leadline_client.errors import BrokerFenced
from leadline_common import rpc, staged_copies
from leadline_common.identity import ServiceIdentity
from tests.support.services.identities import served_to

PARTITION = "/v1/topics/t/partitions/0"
JSON_BODIES: dict[str, object] = {
    f"{PARTITION}/records": {"records": [{"value": "v"}]},
    f"{PARTITION}/staged": {"records": [{"value": "v"}]},
    f"{PARTITION}/publish": {"app": "a", "batch": 0, "staged": ["0" * 32]},
    "/v1/offsets": {"topics": ["t"]},
    "/v1/producer-ids": None,
    rpc.LEADER_AND_ISR_PATH: rpc.LeaderAndIsrRequest(0, 1, 0, 1, True, 1_000, "test", [], []),
}


OF_BROKERS = (rpc.REPLICA_FETCH_PATH, staged_copies.READ_STAGED_PATH)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    commands = served_to(ServiceIdentity("controller", 0), openapi_app(), [rpc.LEADER_AND_ISR_PATH])
    app = served_to(ServiceIdentity("broker", 2), commands, OF_BROKERS)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        f"{PARTITION}/records?offset=0",
        f"{PARTITION}/offsets",
        f"{PARTITION}/epochs/0",
        "/v1/load",
        "/v1/replicas",
    ],
)
async def test_reads_are_refused(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)

    assert answer.json()["error_code"] == BrokerFenced.code


@pytest.mark.parametrize("path", JSON_BODIES)
async def test_writes_are_refused(http: httpx.AsyncClient, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    body = msgspec.json.encode(JSON_BODIES[path])
    answer = await http.post(path, content=body, headers=headers)

    assert answer.json()["error_code"] == BrokerFenced.code


async def test_dropping_an_upload_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.delete(f"{PARTITION}/staged/{'0' * 32}")

    assert answer.json()["error_code"] == BrokerFenced.code


@pytest.mark.parametrize(
    ("path", "request_body"),
    [
        (rpc.REPLICA_FETCH_PATH, rpc.ReplicaFetchRequest(2, 1, 1, 1, 0, 1, 1, [], [])),
        (
            staged_copies.READ_STAGED_PATH,
            staged_copies.ReadStagedRequest(0, 1, 2, 0, "1" * 32, 0, "0" * 32),
        ),
    ],
)
async def test_requests_of_other_brokers_are_refused(
    http: httpx.AsyncClient, path: str, request_body: msgspec.Struct
) -> None:
    headers = {"Content-Type": "application/msgpack"}
    body = msgspec.msgpack.encode(request_body)
    answer = await http.post(path, content=body, headers=headers)

    assert msgspec.json.decode(answer.content)["error_code"] == BrokerFenced.code


async def test_it_is_not_ready(http: httpx.AsyncClient) -> None:
    answer = await http.get("/readyz")

    assert "starting: no cluster or no logs yet" in answer.json()["reasons"]
