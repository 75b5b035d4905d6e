"""Forwarding between two real servers: what comes through, and what a failure means."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import Request, Response
from starlette.middleware import Middleware

from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.forward import ForwardingLayer
from leadline_common.http.listeners import bind
from leadline_common.identity import ServiceAddress, ServiceIdentity
from leadline_common.tracing.traceparent import TraceParent, parsed, written
from tests.support.services.http_service import running
from tests.support.tracing.recorded import attributes, recording, trace_id
from tests.unit.common.http_app import Seen, anybody, build

ADDED = {"accept", "accept-encoding", "content-type", "user-agent"}
"""What HTTP libraries add by themselves."""


@pytest.fixture(autouse=True, params=["in a route", "before routes"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `standby` forward in a route, or before the framework finds one."""
    monkeypatch.setattr(sys.modules[__name__], "PLACE", request.param)


PLACE = ""


def standby(target: list[str], timeout_s: float = 10) -> ServiceApp:
    """A service that forwards everything under /v1."""
    app = create_app(
        title="Standby", version="1", description="d", max_body_bytes=10_000_000, need_of=anybody
    )

    async def forward(request: Request) -> Response:
        to = ServiceAddress(ServiceIdentity("controller", 1), target[0])
        return await app.forwarder.forward(request, to, timeout_s=timeout_s)

    @app.api_route("/v1/{rest:path}", methods=["GET", "POST", "PUT", "DELETE"])
    async def onward(request: Request) -> Response:
        assert PLACE == "in a route", "the framework was asked for a route"
        return await forward(request)

    if PLACE == "before routes":
        app.user_middleware.append(Middleware(ForwardingLayer, forwards={"onward": forward}))
    return app


@asynccontextmanager
async def breaking_server() -> AsyncIterator[tuple[str, list[int]]]:
    """A server that reads requests and then breaks the connection; counts them."""
    requests: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(65536):
            requests.append(1)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", requests
    finally:
        server.close()
        await server.wait_closed()


async def test_a_request_comes_through_whole_and_so_does_the_answer() -> None:
    seen = Seen()
    body = bytes(range(256)) * 1000
    async with (
        running(build(seen, max_body_bytes=10_000_000)) as active,
        running(standby([active])) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        answer = await client.put("/v1/bodies?a=%2F&b=%20c", content=body)
        refused = await client.post("/v1/things", json={"name": 5})
        made = await client.post(
            "/v1/things", json={"name": "n"}, headers={"x-leadline-cause": "c8"}
        )
    assert (answer.status_code, answer.text) == (200, "a=%2F&b=%20c")
    assert answer.headers["x-kept"] == "yes"
    assert seen.bodies == [body]
    assert (refused.status_code, refused.json()["fields"][0]["field"]) == (400, "body.name")
    assert (made.json()["cause"], made.headers.get_list("x-leadline-cause")) == ("c8", ["c8"])


async def test_nothing_is_asked_for_that_the_caller_did_not_ask_for() -> None:
    """Else who cannot decompress would get what was compressed for somebody in between."""
    app = create_app(title="Echo", version="1", description="d", need_of=anybody)

    @app.post("/v1/headers")
    async def headers(request: Request) -> dict[str, str]:
        return dict(request.headers)

    async with (
        running(app) as active,
        running(standby([active])) as url,
        httpx.AsyncClient() as client,
    ):
        bare = client.build_request("POST", f"{url}/v1/headers", content=b"body")
        for name in ADDED:
            bare.headers.pop(name, None)
        seen = (await client.send(bare)).json()
    assert ADDED.isdisjoint(seen)


async def test_a_request_is_forwarded_only_once() -> None:
    targets = [""]
    async with running(standby(targets)) as first, running(standby([first])) as second:
        targets[0] = second
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{second}/v1/cluster")
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50350)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_nobody_there_is_a_refusal(method: str) -> None:
    listener = bind("127.0.0.1", 0)
    listener.socket.close()
    async with running(standby([listener.url])) as url, httpx.AsyncClient() as client:
        answer = await client.request(method, f"{url}/v1/topics")
    body = answer.json()
    assert (answer.status_code, body["error_code"], body["outcome"]) == (503, 50350, "refused")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("method", "code", "outcome"),
    [
        ("GET", 50350, "refused"),
        ("POST", 50454, "unknown"),
        ("PUT", 50454, "unknown"),
        ("DELETE", 50454, "unknown"),
    ],
)
async def test_a_connection_that_breaks_after_sending_is_unknown_for_a_write(
    method: str, code: int, outcome: str
) -> None:
    async with (
        breaking_server() as (target, requests),
        running(standby([target])) as url,
        httpx.AsyncClient() as client,
    ):
        answer = await client.request(method, f"{url}/v1/topics")
    assert (answer.json()["error_code"], answer.json()["outcome"]) == (code, outcome)
    assert len(requests) == 1, "what may have taken effect must not be sent again"


async def test_no_answer_in_time_is_unknown_for_a_write() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    target = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with running(standby([target], timeout_s=0.2)) as url, httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/v1/topics")
    server.close()
    assert (answer.status_code, answer.json()["error_code"]) == (504, 50454)


async def test_what_this_service_refuses_is_not_forwarded() -> None:
    seen = Seen()
    json = {"content-type": "application/json"}
    async with (
        running(build(seen, max_body_bytes=10_000_000)) as active,
        running(standby([active])) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        large = await client.put("/v1/bodies", content=b"x" * 10_000_001)
        spoiled = await client.put("/v1/bodies", content=b'{"a": NaN}', headers=json)
    assert not seen.bodies
    assert (large.status_code, large.json()["message"]) == (
        413,
        "the body is larger than 10000000 bytes",
    )
    assert (spoiled.status_code, spoiled.json()["outcome"]) == (400, "refused")
    assert spoiled.json()["message"].startswith("body: ")


async def test_metrics_name_the_route_of_a_forwarded_request() -> None:
    async with (
        running(build(Seen())) as active,
        running(standby([active])) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await client.get("/v1/none")
        lines = (await client.get("/metrics")).text.splitlines()
    counted = [line for line in lines if line.startswith("leadline_http_requests_total")]
    assert [line for line in counted if 'route="/v1/{rest}"' in line and 'status="404"' in line]


@asynccontextmanager
async def noting_server() -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """A server that answers every request, and keeps the headers."""
    seen: list[dict[str, str]] = []
    app = create_app(title="Noting", version="1", description="d", need_of=anybody)

    @app.get("/v1/things")
    async def note(request: Request) -> Response:
        seen.append(dict(request.headers))
        return Response("{}")

    async with running(app) as url:
        yield url, seen


HOSTILE = TraceParent(0xABC, 0xDEF, sampled=True)
STATED = {"traceparent": written(HOSTILE), "tracestate": "a=b", "x-leadline-cause": "job-1"}


async def test_a_caller_s_trace_is_not_forwarded_by_a_service_that_does_not_trace() -> None:
    async with (
        noting_server() as (target, seen),
        running(standby([target])) as url,
        httpx.AsyncClient() as client,
    ):
        await client.get(f"{url}/v1/things", headers=STATED)
    (headers,) = seen
    assert headers.keys().isdisjoint({"traceparent", "tracestate"})
    assert headers["x-leadline-cause"] == "job-1"


async def test_a_forwarded_request_belongs_to_the_span_of_forwarding_it() -> None:
    with recording() as recorded:
        async with (
            noting_server() as (target, seen),
            running(standby([target])) as url,
            httpx.AsyncClient() as client,
        ):
            await client.get(f"{url}/v1/things?secret=1", headers=STATED)
    (headers,) = seen
    forwarding = recorded.one("forward GET")
    sent = parsed(headers["traceparent"].encode())
    assert sent is not None
    assert forwarding.context is not None
    assert (sent.trace_id, sent.span_id) == (HOSTILE.trace_id, forwarding.context.span_id)
    assert "tracestate" not in headers
    assert attributes(forwarding)["url.full"] == f"{target}/v1/things"
    assert attributes(forwarding)["http.response.status_code"] == 200
    assert {trace_id(span) for span in recorded.spans} == {HOSTILE.trace_id}


async def test_a_request_that_is_not_recorded_is_forwarded_as_such() -> None:
    with recording(0.0) as recorded:
        async with (
            noting_server() as (target, seen),
            running(standby([target])) as url,
            httpx.AsyncClient() as client,
        ):
            await client.get(f"{url}/v1/things", headers=STATED)
    assert seen[0]["traceparent"].endswith("-00")
    assert recorded.names == []
