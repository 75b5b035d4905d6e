"""Plain endpoints, which the gate calls itself: it answers their errors as the framework would."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from leadline_client.errors import LeadlineError, NotFound, StorageFailed
from leadline_common.access.operations import CONNECT, Need
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.bulk import read_body, send_body
from leadline_common.http.operation import Operation
from leadline_common.metrics import Metrics


class Endpoint:
    """Answers with the name in its path, after the body; or raises, perhaps too late."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.begins = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        if self.begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if self.error is not None:
            raise self.error
        await send_body(send, scope["path_params"]["thing"].encode(), b"text/plain")


def anybody(operation: str) -> Need:
    """Let everybody who may connect use every operation."""
    del operation
    return CONNECT


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(process=False)


@pytest.fixture
def app(endpoint: Endpoint, metrics: Metrics) -> ServiceApp:
    application = create_app(
        title="t", version="1", description="", metrics=metrics, need_of=anybody, max_body_bytes=9
    )
    operation = Operation("POST", "/v1/things/{thing}/use", "use", "Use", "", tags=["things"])
    application.add_asgi_route(operation, endpoint)
    return application


async def ask(app: ServiceApp, path: str = "/v1/things/one/use", **options: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post(path, **options)


async def test_it_gets_the_names_in_its_path(app: ServiceApp, metrics: Metrics) -> None:
    assert (await ask(app)).text == "one"
    assert (await ask(app, "/v1/things/%C3%A4%20b/use")).text == "ä b"
    assert 'route="/v1/things/{thing}/use",status="200"} 2.0' in metrics.render().decode()


@pytest.mark.parametrize("error", [NotFound("no thing"), StorageFailed("the disk is broken")])
async def test_its_errors_are_answered(
    app: ServiceApp, endpoint: Endpoint, error: LeadlineError
) -> None:
    endpoint.error = error
    answer = await ask(app)
    assert (answer.status_code, answer.json()) == (error.status, error.body())


async def test_a_body_that_is_too_large_is_refused(app: ServiceApp) -> None:
    answer = await ask(app, content=b"0123456789")
    assert (answer.status_code, answer.json()["error_code"]) == (413, 41350)


async def test_an_unexpected_error_tells_no_details(app: ServiceApp, endpoint: Endpoint) -> None:
    endpoint.error = RuntimeError("secret")
    answer = await ask(app)
    assert (answer.status_code, answer.json()["outcome"]) == (504, "unknown")
    assert "secret" not in answer.text


async def test_an_error_after_the_answer_began_breaks_it_off(
    app: ServiceApp, endpoint: Endpoint
) -> None:
    endpoint.begins, endpoint.error = True, NotFound("no thing")
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/things/one/use",
        "raw_path": b"/v1/things/one/use",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    with pytest.raises(NotFound):
        await app(scope, receive, send)
    assert sent == ["http.response.start"]
