"""What pages in browsers and hostile clients send to real services: refused, without effect."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
import websockets

from leadline_client.wire import NewTopic
from tests.support.faults.scenario import running_cluster
from tests.support.services.cluster import CALM, Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Certificates are not needed here, and loading them takes longer than a request."""
SERVICES = ("broker-1", "controller-1", "coordinator-1")
RECORDS = "/v1/topics/t/partitions/0/records"
JSON = {"content-type": "application/json"}
PAGE = {"origin": "http://evil.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
ACCEPT = {"accept": "application/json"}
RECORD = b'{"records": [{"value": "v"}]}'


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    settings = {
        **CALM,
        "request.head.timeout.ms": "300",
        "transfer.grace.ms": "300",
        "queued.max.request.bytes": str(4 << 20),
    }
    async with running_cluster(controllers=1, coordinators=1, settings=settings) as running:
        await running.client.create_topic(NewTopic("t", replica_assignment={0: (1, 2, 3)}))
        await running.leader_of("t", 0)
        yield running


async def ask(
    cluster: Cluster,
    service: str,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    content: bytes | None = None,
) -> int:
    """Return the status; an error has Leadline's format, and changed nothing."""
    async with httpx.AsyncClient(base_url=cluster.url(service), verify=NO_TLS) as client:
        answer = await client.request(method, path, headers=headers, content=content)
    if answer.status_code >= 400:
        assert answer.json()["error_code"] // 100 == answer.status_code
        assert answer.json()["outcome"] == "refused"
    return answer.status_code


async def exchange(cluster: Cluster, service: str, data: bytes) -> bytes:
    """Send bytes, and return all that is answered until the service closes the connection."""
    port = urlsplit(cluster.url(service)).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        async with asyncio.timeout(20):
            writer.write(data)
            await writer.drain()
            answer = await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


async def nothing_changed(cluster: Cluster) -> None:
    """Check that the only topic is there and empty, and that every service answers."""
    for service in SERVICES:
        assert await ask(cluster, service, "GET", "/healthz") == 200
    leader = await cluster.leader_of("t", 0)
    async with httpx.AsyncClient(base_url=cluster.url(leader), verify=NO_TLS) as client:
        topics = (await client.get("/v1/metadata")).json()["topics"]
        records = (await client.get(f"{RECORDS}?offset=0&wait_ms=0", headers=ACCEPT)).json()
    assert list(topics) == ["t"]
    assert records["records"] == []


@pytest.mark.parametrize("service", SERVICES)
async def test_a_rebound_name_is_refused(cluster: Cluster, service: str) -> None:
    rebound = {"host": "evil.example"}
    assert await ask(cluster, service, "GET", "/healthz", rebound) == 403
    assert await ask(cluster, service, "DELETE", "/v1/topics/t", rebound) == 403
    await nothing_changed(cluster)


async def test_a_page_of_another_origin_changes_and_reads_nothing(cluster: Cluster) -> None:
    leader = await cluster.leader_of("t", 0)
    assert await ask(cluster, leader, "POST", RECORDS, PAGE | JSON, RECORD) == 403
    assert await ask(cluster, leader, "POST", RECORDS, content=RECORD) == 415
    assert await ask(cluster, leader, "DELETE", "/v1/topics/t", PAGE) == 403
    assert await ask(cluster, leader, "GET", "/v1/metadata", PAGE) == 403
    await nothing_changed(cluster)


async def test_a_page_of_another_origin_opens_no_channel(cluster: Cluster) -> None:
    url = cluster.url("coordinator-1").replace("http", "ws") + "/v1/groups/g/channel"
    for options in ({"origin": "http://evil.example"}, {"additional_headers": PAGE}):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(url, **options)
        assert refused.value.response.status_code == 403
    async with websockets.connect(url):
        pass


async def test_the_pages_of_a_service_may_use_it(cluster: Cluster) -> None:
    for service in ("broker-1", "controller-1"):
        own = {"origin": cluster.url(service), "sec-fetch-site": "same-origin"}
        body = b'{"name": "other", "partitions": 1, "replication_factor": 3, "dry_run": true}'
        status = await ask(cluster, service, "POST", "/v1/topics", own | JSON, body)
        assert status in (200, 201)
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert await ask(cluster, service, "GET", "/docs", link) == 200


@pytest.mark.parametrize("service", ["broker-1", "controller-1"])
@pytest.mark.parametrize(
    "value",
    [rb'"\ud800x"', b'"\xff"', b"1" * 5_000, b"[" * 50_000 + b"]" * 50_000, b"NaN"],
    ids=["surrogate", "UTF-8", "digits", "depth", "NaN"],
)
@pytest.mark.parametrize(
    ("method", "path", "member"),
    [
        ("POST", "/v1/topics", b"name"),
        ("POST", "/v1/elections", b"partitions"),
        ("POST", "/v1/reassignments", b"partitions"),
        ("PATCH", "/v1/configs", b"settings"),
        ("POST", RECORDS, b"records"),
    ],
)
async def test_json_that_cannot_be_represented_is_refused(
    cluster: Cluster, service: str, value: bytes, method: str, path: str, member: bytes
) -> None:
    body = b'{"' + member + b'": ' + value + b', "x": ' + value + b"}"
    sent = JSON | {"idempotency-key": f"{service}-{hash(body)}"}
    if path == RECORDS and service == "controller-1":
        service = await cluster.leader_of("t", 0)
    assert await ask(cluster, service, method, path, sent, body) == 400


async def test_hostile_connections_are_bounded_and_leave_no_trace(cluster: Cluster) -> None:
    host = b"Host: 127.0.0.1\r\n"
    for service in SERVICES:
        head = b"GET /healthz HTTP/1.1\r\n" + host
        shapes = {
            b"": b"408",
            head: b"408",
            head + b"X: " + b"a" * (1 << 20): b"431",
            b"GET /" + b"a" * 20_000: b"414",
            head + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": b"400",
            b"POST /v1/topics HTTP/1.1\r\nContent-Type: application/json\r\n"
            + host
            + b"Content-Length: 9\r\n\r\n{": b"408",
        }
        answers = await asyncio.gather(*(exchange(cluster, service, one) for one in shapes))
        # A caller that is still sending may lose the answer; the coordinator has no topics (404).
        got = [answer[9:12] for answer in answers]
        pairs = list(zip(got, shapes.values(), strict=True))
        assert all(one in (b"", b"404", wanted) for one, wanted in pairs), pairs
        assert got.count(b"") <= 2
        async with httpx.AsyncClient(base_url=cluster.url(service), verify=NO_TLS) as client:
            metrics = (await client.get("/metrics")).text
        assert 'leadline_http_refused_connections_total{reason="RequestTooSlow"}' in metrics
    await nothing_changed(cluster)
