"""Invalid requests, made from the served documents, never cause an internal error.

Each takes the example of an operation and changes its parameters, body or headers. Values
that are valid but expensive (many partitions, long waits) are left out. A deletion never
names the topic of the other requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import httpx
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from leadline_client.errors import ERRORS_BY_CODE
from leadline_common.cause import HEADER as CAUSE
from leadline_common.identity import Kind, ServiceIdentity
from tests.support.openapi.document import (
    JSON,
    TOPIC,
    Call,
    Described,
    end_tasks,
    internal_operations,
    operations_at,
)
from tests.support.services.cluster import Cluster

EACH = 30
"""Requests for each operation."""
NUMBERS = (-(2**63) - 1, -1, 0, 1, 2, 7, 2**31, 2**63 - 1, 2**63, 10**40)
ODD_TEXTS = ("", " ", "0", "-1", "1e9", "NaN", "true", "null", "é", "\x00", "a" * 300, "../..", "%")
RAW_BODIES = (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"name": "\\ud800"}')
MEDIA_TYPES = (
    JSON,
    "application/json; charset=utf-8",
    "text/plain",
    "application/octet-stream",
    "",
)
CAUSES = ("mine-1", "a" * 64, "a" * 65, "white space", "<b>", "")
OF_THE_PATH = {404, 405}
"""Statuses of any invalid path, as there may be no such route."""

texts = st.sampled_from(ODD_TEXTS) | st.sampled_from(NUMBERS).map(str) | st.text(max_size=12)
leaves = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.floats() | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module", params=["broker-1", "controller-1"])
def url(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """A service of each kind, in a cluster with the topic of the examples."""
    topics = f"{cluster.url('broker-1')}/v1/topics"
    wanted = {"name": TOPIC, "replica_assignment": {"0": [1, 2, 3]}}
    with httpx.Client(trust_env=False, timeout=60) as client:
        client.post(topics, json=wanted).raise_for_status()
        yield cluster.url(request.param)
        end_tasks(client, cluster.url(request.param))
        deleted = client.delete(f"{topics}/{TOPIC}", params={"wait_ms": 60_000})
        assert deleted.status_code == 200, deleted.text


@st.composite
def spoiled(draw: st.DrawFn, operation: Described) -> Call:
    """Draw a request that differs a little from the example."""
    call = operation.example()
    for name in draw(st.sets(st.sampled_from(["path", "query", "headers", "body"]), min_size=1)):
        call = SPOILERS[name](draw, call)
    if operation.method == "delete":
        call = replace(
            call, path=dict.fromkeys(call.path, draw(texts.filter(lambda t: t != TOPIC)))
        )
    return call


def _spoil_path(draw: st.DrawFn, call: Call) -> Call:
    return replace(
        call, path={name: draw(texts | st.just(value)) for name, value in call.path.items()}
    )


def _spoil_query(draw: st.DrawFn, call: Call) -> Call:
    query: list[tuple[str, str]] = [
        (name, draw(texts | st.just(value))) for name, value in call.query
    ]
    kept = draw(st.integers(0, len(query)))
    added = draw(st.lists(st.tuples(texts, texts), max_size=1))
    return replace(call, query=[*query[:kept], *added])


def _spoil_headers(draw: st.DrawFn, call: Call) -> Call:
    headers = {
        CAUSE: draw(st.sampled_from(CAUSES)),
        "accept": draw(st.sampled_from([*MEDIA_TYPES, "*/*"])),
        "content-type": draw(st.sampled_from(MEDIA_TYPES)),
        "if-none-match": draw(st.sampled_from(["*", '"1"', "W/", ""])),
    }
    return replace(call, headers=call.headers | headers)


def _spoil_body(draw: st.DrawFn, call: Call) -> Call:
    if call.content is None or draw(st.integers(0, 4)) == 0:
        content = draw(st.sampled_from(RAW_BODIES) | st.binary(max_size=20))
        return replace(call, content=content, headers={"content-type": JSON} | call.headers)
    body = _spoil_value(draw, json.loads(call.content))
    return replace(call, content=json.dumps(body).encode())


def _spoil_value(draw: st.DrawFn, value: Any) -> Any:
    """Replace, drop or add something at some depth of a JSON value."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 3)) == 0:
        return draw(values)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = draw(st.sampled_from(list(keys)))
    kind = draw(st.sampled_from(["deeper", "drop", "add"]))
    if kind == "deeper":
        value[key] = _spoil_value(draw, value[key])
    elif kind == "drop":
        del value[key]
    elif isinstance(value, dict):
        value[draw(texts)] = draw(values)
    else:
        value.append(draw(values))
    return value


SPOILERS: dict[str, Callable[[st.DrawFn, Call], Call]] = {
    "path": _spoil_path,
    "query": _spoil_query,
    "headers": _spoil_headers,
    "body": _spoil_body,
}


def test_no_request_causes_an_internal_error_or_an_undocumented_response(
    url: str, cluster: Cluster
) -> None:
    """A broker forwards the administration, so that a controller is asked for the rest only."""
    broker = cluster.url("broker-1")
    with httpx.Client(trust_env=False, timeout=60) as client:
        at_broker = {one.id for one in operations_at(client, broker)} if url != broker else set()
        for operation in operations_at(client, url):
            if operation.id not in at_broker:
                send_spoiled(client, url, operation)
        assert client.get(f"{url}/readyz").status_code == 200


@pytest.mark.parametrize("name", ["broker-1", "controller-1"])
def test_no_request_of_a_service_causes_one_either(cluster: Cluster, name: str) -> None:
    kind, other = name.partition("-")[0], "controller" if name == "broker-1" else "broker"
    callers = [ServiceIdentity(cast("Kind", other), 1), ServiceIdentity("broker", 2)]
    for caller in callers:
        with cluster.internal_client(name, caller) as client:
            for operation in internal_operations(kind):
                if operation.example_body() is not None:
                    send_spoiled(client, "", operation)
                refuse_deep_body(client, "", operation)
            assert client.get("/healthz").status_code == 200


def test_a_body_that_is_nested_too_deeply_is_refused(url: str) -> None:
    with httpx.Client(trust_env=False, timeout=60) as client:
        for operation in operations_at(client, url):
            refuse_deep_body(client, url, operation)


def refuse_deep_body(client: httpx.Client, url: str, operation: Described) -> None:
    if JSON not in operation.details.get("requestBody", {}).get("content", {}):
        return
    deep = b'{"records": ' + b"[" * 100_000
    call = replace(operation.example(), content=deep, headers={"content-type": JSON})
    answer = operation.send(client, url, call)
    assert answer.status_code == 400, f"{operation.path}: {answer.text}"
    check_answer(operation, call, answer)


def send_spoiled(client: httpx.Client, url: str, operation: Described) -> None:
    """Send many requests to one operation, and check each answer."""

    @settings(
        max_examples=EACH,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(spoiled(operation))
    def check(call: Call) -> None:
        answer = operation.send(client, url, call)
        note(f"{operation.method} {operation.path} {call}\n{answer.status_code} {answer.text}")
        check_answer(operation, call, answer)

    check()


def check_answer(operation: Described, call: Call, answer: httpx.Response) -> None:
    # A write that fails answers 504, because its outcome is unknown; its message shows the reason.
    assert answer.status_code != 500
    assert "internal error" not in answer.text
    odd_path = bool(call.path) and answer.status_code in OF_THE_PATH
    if not odd_path:
        assert operation.problems_of(answer) == []
    stated = call.headers.get(CAUSE, "")
    assert answer.headers[CAUSE] == stated or not is_sane(stated)
    if answer.is_error and operation.path.startswith("/v1"):
        check_error(answer)


def check_error(answer: httpx.Response) -> None:
    body = answer.json()
    error = ERRORS_BY_CODE[body["error_code"]]
    assert error("").status == answer.status_code
    assert (body["outcome"], body["retriable"]) == (error.outcome, error.retriable)
    assert body["message"]


def is_sane(cause: str) -> bool:
    return cause in ("mine-1", "a" * 64)
