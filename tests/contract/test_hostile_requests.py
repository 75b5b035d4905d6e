"""Invalid requests, made from the served documents, never cause an internal error.

Each takes the example of an operation and changes its parameters, body or headers
(`tests.support.openapi.spoiled`). `python -m tests.fuzz http` sends more of them, with fresh seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, note, settings

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
from tests.support.openapi.spoiled import spoiled
from tests.support.services.cluster import Cluster

FEW, MANY = 10, 30
"""Requests for each operation."""
OF_THE_PATH = {404, 405}
"""Statuses of any invalid path, as there may be no such route."""


@pytest.fixture(scope="module", params=["broker-1", "controller-1"])
def url(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """A service of each kind, in a cluster with the topic of the examples."""
    topics = f"{cluster.url('broker-1')}/v1/topics"
    wanted = {"name": TOPIC, "replica_assignment": {"0": [1, 2, 3]}}
    with httpx.Client(trust_env=False, timeout=60) as client:
        client.post(topics, json=wanted).raise_for_status()
        yield cluster.url(request.param)
        end_tasks(client, cluster.url(request.param))
        # A changed request may be a valid one, and create the topic of its example.
        for topic in client.get(topics).raise_for_status().json()["topics"]:
            one = f"{topics}/{quote(topic['name'], safe='')}"
            deleted = client.delete(one, params={"wait_ms": 60_000})
            assert deleted.status_code == 200, deleted.text
        users = cluster.url("broker-1") + "/v1/users"
        for user in client.get(users).raise_for_status().json()["users"]:
            client.delete(f"{users}/{user['name']}").raise_for_status()
        broker = cluster.url("broker-1")
        reset_settings(client, f"{broker}/v1/configs")
        for row in client.get(f"{broker}/v1/brokers").raise_for_status().json()["brokers"]:
            reset_settings(client, f"{broker}/v1/brokers/{row['id']}/configs")


def reset_settings(client: httpx.Client, url: str) -> None:
    """Remove what a changed request has set for the cluster, or for a broker."""
    found = client.get(url).raise_for_status().json()
    own = [one["name"] for one in found["configs"] if one["source"] == found["level"]]
    if own:
        client.patch(url, json={"remove": own}).raise_for_status()


each = pytest.mark.parametrize("each", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


@each
def test_no_request_causes_an_internal_error_or_an_undocumented_response(
    url: str, cluster: Cluster, each: int
) -> None:
    """A broker forwards the administration, so that a controller is asked for the rest only."""
    broker = cluster.url("broker-1")
    with httpx.Client(trust_env=False, timeout=60) as client:
        at_broker = {one.id for one in operations_at(client, broker)} if url != broker else set()
        for operation in operations_at(client, url):
            if operation.id not in at_broker:
                send_spoiled(client, url, operation, each)
        assert client.get(f"{url}/readyz").status_code == 200


@each
@pytest.mark.parametrize("name", ["broker-1", "controller-1"])
def test_no_request_of_a_service_causes_one_either(cluster: Cluster, name: str, each: int) -> None:
    kind, other = name.partition("-")[0], "controller" if name == "broker-1" else "broker"
    callers = [ServiceIdentity(cast("Kind", other), 1), ServiceIdentity("broker", 2)]
    for caller in callers:
        with cluster.internal_client(name, caller) as client:
            for operation in internal_operations(kind):
                if operation.example_body() is not None:
                    send_spoiled(client, "", operation, each)
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


def send_spoiled(client: httpx.Client, url: str, operation: Described, each: int) -> None:
    """Send many requests to one operation, and check each answer."""

    @settings(
        max_examples=each,
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
