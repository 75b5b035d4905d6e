"""Errors below /v3 have that API's format and codes, whichever layer has found them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from leadline_broker.api.app import build_app
from leadline_broker.api.v3.errors import (
    CODES,
    OUTCOME_HEADER,
    RETRIABLE,
    code_of,
    response_of,
    translated,
)
from leadline_broker.api.v3.layer import PREFIX_KEY, V3Layer
from leadline_broker.main import build_broker, openapi_app
from leadline_client import errors
from leadline_client.errors import ERRORS_BY_CODE, LeadlineError, QuotaExceeded, Refused
from leadline_common.access.users import Users
from leadline_common.clock import SystemClock
from leadline_common.http.access import Authentication
from leadline_common.http.errors import error_response
from leadline_common.http.origins import AllowedNames
from leadline_common.metrics import Metrics
from leadline_common.settings import BrokerSettings


def test_every_error_of_the_tree_has_a_code_of_this_api() -> None:
    assert set(CODES) == set(ERRORS_BY_CODE.values())


@pytest.mark.parametrize("error", CODES, ids=lambda error: error.__name__)
def test_a_code_belongs_to_its_status(error: type[LeadlineError]) -> None:
    status, code = CODES[error]
    assert code in (status, *range(100 * status, 100 * status + 50))
    assert (status >= 500) >= error.retriable or status in (400, 404, 408, 409, 429)


@pytest.mark.parametrize("error", CODES, ids=lambda error: error.__name__)
def test_a_native_response_is_translated_without_its_details(error: type[LeadlineError]) -> None:
    native = error_response(error("why", some_detail=5))
    response = translated(native.status_code, bytes(native.body))
    body = json.loads(bytes(response.body))
    assert (response.status_code, body["error_code"]) == CODES[error]
    assert set(body) == {"error_code", "message"}
    assert body["message"].endswith("why")
    unknown = error.outcome == "unknown"
    assert (response.headers.get(OUTCOME_HEADER) == "unknown") is unknown
    assert ("outcome is unknown" in body["message"]) is unknown


@pytest.mark.parametrize("error", CODES, ids=lambda error: error.__name__)
def test_what_is_translated_twice_stays_as_it_is(error: type[LeadlineError]) -> None:
    native = error_response(error("why"))
    once = translated(native.status_code, bytes(native.body))
    again = translated(once.status_code, bytes(once.body))
    assert (once.status_code, once.body) == (again.status_code, again.body)


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"[]", b'{"detail": "no"}', b'{"error_code": "x"}']
)
def test_what_is_no_error_of_ours_has_the_code_of_its_status(content: bytes) -> None:
    response = translated(418, content)
    assert json.loads(bytes(response.body))["error_code"] == response.status_code == 418


def test_an_error_of_a_newer_release_keeps_its_kind() -> None:
    class Newer(Refused):
        code = 50399
        retriable = True

    try:
        assert code_of(Newer("")) == RETRIABLE
    finally:
        assert ERRORS_BY_CODE.get(50399) is None


async def answer_of(app: Any, method: str, path: str, **options: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(method, path, **options)


@pytest.mark.parametrize("prefix", ["/v3", "/kafka/v3"])
@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "", 404, 404),
        ("GET", "/nothing", 404, 404),
        ("PUT", "/clusters", 405, 405),
        ("GET", "/clusters", 500, 50003),
        ("GET", "/clusters/x/topics", 404, 404),
        ("POST", "/clusters/x/topics/t/records", 404, 404),
    ],
)
async def test_layers_answer_in_the_format_of_this_api(
    prefix: str, method: str, path: str, status: int, code: int
) -> None:
    answer = await answer_of(openapi_app(), method, prefix + path)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert set(answer.json()) == {"error_code", "message"}
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_who_shows_no_token_gets_40101_with_a_challenge() -> None:
    app = openapi_app()
    app.authentication = Authentication(required=True, users=Users)
    answer = await answer_of(app, "GET", "/v3/clusters")
    assert (answer.status_code, answer.json()["error_code"]) == (401, 40101)
    # A header each, because browsers know the first challenge of a header only.
    challenges = answer.headers.get_list("www-authenticate")
    assert challenges == ['Bearer realm="leadline"', 'Basic realm="leadline"']


@pytest.mark.parametrize("headers", [{"host": "elsewhere"}, {"origin": "http://elsewhere"}])
async def test_what_the_outer_layers_refuse_is_translated(
    headers: dict[str, str],
) -> None:
    settings = BrokerSettings(broker_id=0, log_dir="")
    metrics = Metrics()
    broker = build_broker(settings, metrics, SystemClock())
    app = build_app(broker, request_max_bytes=100, metrics=metrics, names=AllowedNames())
    headers = {"content-type": "application/json", **headers}
    answer = await answer_of(app, "POST", "/v3/clusters", headers=headers, content=b"{}")
    assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)
    unstated = {"content-length": "2"}
    answer = await answer_of(app, "POST", "/v3/clusters", headers=unstated, content=b"{}")
    assert (answer.status_code, answer.json()["error_code"]) == (415, 415)


async def test_a_quota_keeps_its_retry_after() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await error_response(QuotaExceeded("slow down", retry_after_s=3))(scope, receive, send)

    answer = await answer_of(V3Layer(refuse), "GET", "/v3/clusters")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert answer.json() == {"error_code": 429, "message": "slow down"}


@pytest.mark.parametrize(
    ("error", "after"),
    [
        (QuotaExceeded("slow down", retry_after_s=2.5), "3"),
        (errors.BrokerFenced("starting"), "1"),
        (errors.InvalidRequest("no"), None),
    ],
)
async def test_an_endpoint_of_this_api_says_when_to_try_again(
    error: LeadlineError, after: str | None
) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await response_of(error)(scope, receive, send)

    answer = await answer_of(V3Layer(refuse), "POST", "/v3/clusters/c/topics/t/records")
    assert answer.headers.get_list("retry-after") == ([after] if after else [])


async def test_other_paths_and_successes_are_left_alone() -> None:
    seen: list[tuple[str, bytes, str | None]] = []

    async def remember(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["path"], scope["raw_path"], scope.get(PREFIX_KEY)))
        await error_response(errors.NotFound("no", more=1))(scope, receive, send)

    app = V3Layer(remember)
    assert "more" in (await answer_of(app, "GET", "/v1/topics")).json()
    assert "more" in (await answer_of(app, "GET", "/v3x")).json()
    assert "more" not in (await answer_of(app, "GET", "/kafka/v3/a%2Fb")).json()
    assert (await answer_of(app, "HEAD", "/v3/x")).status_code == 404
    assert seen[2] == ("/v3/a/b", b"/v3/a%2Fb", "/kafka/v3")
    assert [prefix for *_, prefix in seen] == [None, None, "/kafka/v3", "/v3"]
