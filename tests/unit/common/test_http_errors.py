"""Every error has Leadline's format and the right status, and shows no internal details."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import structlog

from leadline_client.errors import (
    ERRORS_BY_CODE,
    ClusterChanged,
    InternalError,
    LeaderHint,
    LeadlineError,
    NotLeader,
    OutcomeUnknown,
    QuotaExceeded,
    StoreOutcomeUnknown,
    error_from_body,
)
from leadline_common.http.errors import ErrorBody, error_response, error_responses
from leadline_common.logs import configure_logging
from leadline_common.problems import Problem
from tests.unit.common.http_app import Seen, build, client_of

JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """What the service logs."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logging("things", 1, stream=stream)
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("request_of", "status", "code", "fields"),
    [
        (("POST", "/v1/things", {"json": {"sizes": [1]}}), 400, 40050, ["body.name"]),
        (
            ("POST", "/v1/things", {"json": {"name": "n", "sizes": [1, "x", 2, "y"]}}),
            400,
            40050,
            ["body.sizes.1", "body.sizes.3"],
        ),
        (("POST", "/v1/things", {"content": b'{"name":', "headers": JSON}), 400, 40050, ["body"]),
        (("POST", "/v1/things", {}), 400, 40050, ["body"]),
        (("POST", "/v1/things", {"content": b"[]", "headers": JSON}), 400, 40050, ["body"]),
        (("GET", "/v1/things/x?depth=9", {}), 400, 40050, ["path.number", "query.depth"]),
        (("POST", "/v1/things", {"data": {"name": "n"}}), 415, 41550, None),
        (("GET", "/v1/none", {}), 404, 404, None),
        (("GET", "/v1/things/", {}), 404, 404, None),
        (("DELETE", "/v1/things", {}), 405, 405, None),
    ],
    ids=[
        "missing field",
        "wrong items",
        "not JSON",
        "no body",
        "wrong kind of body",
        "path and query",
        "a form",
        "no such route",
        "no redirect for a slash",
        "wrong method",
    ],
)
async def test_bad_input(
    request_of: tuple[str, str, dict[str, Any]], status: int, code: int, fields: list[str] | None
) -> None:
    method, path, options = request_of
    async with client_of(build()) as client:
        answer = await client.request(method, path, **options)
    body = answer.json()
    ErrorBody.model_validate(body)
    assert (answer.status_code, body["error_code"], body["outcome"]) == (status, code, "refused")
    assert body["error_code"] in ERRORS_BY_CODE
    found = body.get("fields")
    assert (found and [problem["field"] for problem in found]) == fields


async def test_a_charset_on_a_json_body_is_accepted() -> None:
    async with client_of(build()) as client:
        answer = await client.post(
            "/v1/things",
            content='{"name": "ü"}'.encode(),
            headers={"content-type": "application/json; charset=utf-8"},
        )
    assert (answer.status_code, answer.json()["name"]) == (201, "ü")


async def test_a_wrong_method_says_all_that_are_right_and_options_is_answered() -> None:
    async with client_of(build()) as client:
        refused = await client.request("PATCH", "/v1/bodies")
        asked = await client.options("/v1/bodies")
        elsewhere = await client.options("/v1/none")
    assert refused.headers["allow"] == "GET, HEAD, POST, PUT, OPTIONS"
    assert (asked.status_code, asked.headers["allow"]) == (204, refused.headers["allow"])
    assert elsewhere.status_code == 404


async def test_errors_of_the_tree_come_through_whole() -> None:
    async with client_of(build()) as client:
        not_leader = await client.get("/v1/errors/not-leader")
        timeout = await client.get("/v1/errors/timeout")
        unknown = await client.get("/v1/errors/unknown")
    decoded = error_from_body(not_leader.status_code, not_leader.json())
    assert (not_leader.status_code, type(decoded)) == (421, NotLeader)
    assert decoded.leader == LeaderHint(2, "http://127.0.0.1:9", 7)
    assert (timeout.status_code, timeout.json()["outcome"]) == (504, "unknown")
    assert unknown.json()["topic"] == "t"


async def test_defect_09_a_request_for_another_cluster_is_refused_and_has_no_effect() -> None:
    rows: list[tuple[dict[str, str], int]] = [
        ({"X-Leadline-Cluster-Id": "a"}, 421),
        ({"X-Leadline-Cluster-Id": "b"}, 201),
        ({}, 201),
    ]
    async with client_of(build(cluster_id=lambda: "b")) as client:
        for headers, status in rows:
            answer = await client.post("/v1/things", json={"name": "x"}, headers=headers)
            assert answer.status_code == status
            assert answer.headers["x-leadline-cluster-id"] == "b"
            if status == 421:
                assert answer.json()["error_code"] == ClusterChanged.code
                assert answer.json()["outcome"] == "refused"
                assert (answer.json()["known_cluster_id"], answer.json()["cluster_id"]) == (
                    "a",
                    "b",
                )


async def test_a_retriable_503_says_when_to_come_back() -> None:
    async with client_of(build()) as client:
        unavailable = await client.get("/v1/errors/no-controller")
        other = await client.get("/v1/errors/not-leader")
    assert (unavailable.status_code, unavailable.headers["retry-after"]) == (503, "1")
    assert "retry-after" not in other.headers


def test_a_quota_says_when_to_come_back() -> None:
    waits = error_response(QuotaExceeded("too many requests", retry_after_s=1.2))
    assert (waits.status_code, waits.headers["retry-after"]) == (429, "2")
    assert json.loads(bytes(waits.body))["retry_after_s"] == 1.2
    assert "retry-after" not in error_response(QuotaExceeded("too many requests")).headers


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/bug", InternalError),
        ("POST", "/v1/bug/in-a-read", InternalError),
        ("POST", "/v1/bug", StoreOutcomeUnknown),
        ("DELETE", "/v1/bug", StoreOutcomeUnknown),
    ],
)
async def test_a_bug_is_a_refusal_of_a_read_and_an_unknown_outcome_of_a_write(
    method: str, path: str, expected: type[LeadlineError]
) -> None:
    async with client_of(build()) as client:
        answer = await client.request(method, path)
    assert "secret" not in answer.text
    error = error_from_body(answer.status_code, answer.json())
    assert type(error) is expected
    assert isinstance(error, OutcomeUnknown) is (expected is StoreOutcomeUnknown)


async def test_a_bug_is_logged_with_its_traceback_and_cause(log: io.StringIO) -> None:
    async with client_of(build()) as client:
        await client.post("/v1/bug", headers={"X-Leadline-Cause": "job-7"})
    (line,) = [json.loads(line) for line in log.getvalue().splitlines()]
    assert (line["level"], line["cause"], line["path"]) == ("error", "job-7", "/v1/bug")
    assert "RuntimeError: secret of the inside" in line["exception"]


async def test_a_bug_half_way_through_an_answer_breaks_the_connection() -> None:
    async with client_of(build()) as client:
        with pytest.raises(RuntimeError):
            await client.get("/v1/bug/half-way")


@pytest.mark.parametrize("path", ["/v1/things", "/v1/internal/countRows"])
@pytest.mark.parametrize("chunked", [False, True], ids=["stated length", "chunked"])
async def test_a_body_beyond_the_limit_is_refused(path: str, chunked: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 10_000

    body = chunks() if chunked else b" " * 200_000
    app = build(max_body_bytes=50_000)
    async with client_of(app) as client:
        answer = await client.post(path, content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (413, 41350)


async def test_a_bulk_route_has_a_limit_of_its_own() -> None:
    rows = [[1, 2]] * 10_000
    app = build(max_body_bytes=100)
    async with client_of(app) as client:
        answer = await client.post("/v1/internal/countRows", json={"rows": rows})
        refused = await client.post("/v1/internal/countRows", json={"rows": rows * 2})
    assert (answer.status_code, answer.json()["count"]) == (200, 10_000)
    assert refused.status_code == 413


async def test_a_stated_cause_is_kept_and_a_missing_or_unsafe_one_replaced() -> None:
    async with client_of(build()) as client:
        kept = await client.post(
            "/v1/things", json={"name": "n"}, headers={"X-Leadline-Cause": "job-7"}
        )
        unsafe = await client.get("/v1/none", headers={"X-Leadline-Cause": "a b"})
        fresh = await client.get("/healthz")
    assert (kept.headers["x-leadline-cause"], kept.json()["cause"]) == ("job-7", "job-7")
    assert unsafe.headers["x-leadline-cause"] != "a b"
    assert len(fresh.headers["x-leadline-cause"]) == 16


async def test_requests_under_way_at_once_keep_their_own_causes() -> None:
    async with client_of(build()) as client:
        answers = await asyncio.gather(
            *(
                client.post("/v1/things", json={"name": "n"}, headers={"X-Leadline-Cause": f"c{n}"})
                for n in range(20)
            )
        )
    assert [answer.json()["cause"] for answer in answers] == [f"c{n}" for n in range(20)]


@pytest.mark.parametrize(
    ("problems", "status", "state"),
    [
        ([], 200, "ready"),
        ([Problem("3 partitions under-replicated", serving=True)], 200, "degraded"),
        (
            [Problem("3 partitions under-replicated", serving=True), Problem("no session")],
            503,
            "not_ready",
        ),
    ],
)
async def test_readiness_comes_with_its_reasons(
    problems: list[Problem], status: int, state: str
) -> None:
    seen = Seen(problems=problems)
    async with client_of(build(seen)) as client:
        answer = await client.get("/readyz")
        alive = await client.get("/healthz")
    assert answer.status_code == status
    assert answer.json() == {
        "ready": status == 200,
        "state": state,
        "reasons": [problem.reason for problem in problems],
    }
    assert alive.json() == {"alive": True}


async def test_requests_are_counted_by_route_not_by_path() -> None:
    async with client_of(build()) as client:
        for number in (1, 2, 3):
            await client.get(f"/v1/things/{number}")
        await client.get("/v1/none/1")
        await client.post("/v1/internal/countRows", json={"rows": []})
        text = (await client.get("/metrics")).text
    assert 'requests_total{method="GET",route="/v1/things/{number}",status="200"} 3' in text
    assert 'route="unmatched",status="404"} 1' in text
    assert 'route="/v1/internal/countRows",status="200"} 1' in text


async def test_head_is_get_without_the_body() -> None:
    async with client_of(build()) as client:
        got = await client.get("/v1/things/3")
        head = await client.head("/v1/things/3")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


@pytest.mark.parametrize("kind", ERRORS_BY_CODE.values(), ids=lambda kind: kind.__name__)
def test_each_error_can_be_sent_documented_and_read_back(kind: type[LeadlineError]) -> None:
    details = {name: of_type() for name, of_type in kind.members.items()}
    answer = error_response(kind("why", **details))
    back = error_from_body(
        answer.status_code, httpx.Response(200, content=bytes(answer.body)).json()
    )
    assert (type(back), back.message) == (kind, "why")
    (documented,) = error_responses(kind).values()
    (example,) = documented["content"]["application/json"]["examples"].values()
    assert example["value"]["error_code"] == kind.code
    assert example["summary"]
