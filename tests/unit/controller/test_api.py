"""What a controller without ZooKeeper answers: what-if, refusals, readiness, documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from leadline_controller.main import openapi_app


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(openapi_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://controller") as client:
        yield client


async def what_if(http: httpx.AsyncClient, question: str, **body: Any) -> Any:
    answer = await http.post(f"/v1/what-if/{question}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_what_if_election(http: httpx.AsyncClient) -> None:
    question = {"assignment": [1, 2, 3], "isr": [1, 2], "live": [3]}
    kept = {"leader": -1, "isr": [1, 2], "reason": "none"}
    assert await what_if(http, "election", kind="offline", **question) == kept
    unclean = {"leader": 3, "isr": [3], "reason": "unclean"}
    assert await what_if(http, "election", kind="offline", unclean=True, **question) == unclean


async def test_what_if_placement(http: httpx.AsyncClient) -> None:
    answer = await what_if(
        http,
        "placement",
        brokers=[{"id": number} for number in range(5)],
        partitions=10,
        replication_factor=3,
        start_index=0,
    )
    assert answer["assignment"]["5"] == [0, 2, 3]


@pytest.mark.parametrize(
    ("question", "body", "code"),
    [
        ("election", {"kind": "coup", "assignment": [1], "live": []}, 40050),
        ("election", {"kind": "offline", "assignment": [1, 1], "isr": [], "live": []}, 40050),
        ("election", {"kind": "offline", "assignment": ["1"], "isr": [], "live": []}, 40050),
        ("placement", {"brokers": [], "partitions": 1, "replication_factor": 1}, 40002),
        ("placement", {"brokers": [{"id": 1}], "partitions": 0, "replication_factor": 1}, 40050),
        (
            "placement",
            {"brokers": [{"id": 1}, {"id": 1}], "partitions": 1, "replication_factor": 1},
            40050,
        ),
        (
            "placement",
            {
                "brokers": [{"id": 1, "rack": "a"}, {"id": 2}],
                "partitions": 1,
                "replication_factor": 1,
            },
            40002,
        ),
    ],
)
async def test_bad_questions(
    http: httpx.AsyncClient, question: str, body: dict[str, Any], code: int
) -> None:
    answer = await http.post(f"/v1/what-if/{question}", json=body)
    assert (answer.json()["error_code"], answer.json()["outcome"]) == (code, "refused")


async def test_without_a_ruler_everything_else_is_refused(http: httpx.AsyncClient) -> None:
    for method, path in (
        ("GET", "/v1/metadata"),
        ("GET", "/v1/topics"),
        ("POST", "/v1/topics"),
        ("DELETE", "/v1/topics/orders"),
        ("POST", "/v1/elections"),
    ):
        answer = await http.request(method, path)
        assert (answer.status_code, answer.json()["error_code"]) == (503, 50350)
        assert answer.json()["outcome"] == "refused"
    ready = await http.get("/readyz")
    assert (ready.status_code, ready.json()["reasons"]) == (503, ["no session with ZooKeeper"])
    own = (await http.get("/v1/controller")).json()
    assert (own["active"], own["controller"]) == (False, None)


async def test_every_example_is_what_its_operation_takes(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    for question in ("election", "placement"):
        operation = document["paths"][f"/v1/what-if/{question}"]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        name = schema["$ref"].rpartition("/")[2]
        await what_if(http, question, **document["components"]["schemas"][name]["example"])
