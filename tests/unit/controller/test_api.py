"""What a controller without ZooKeeper answers: what-if, refusals, readiness, documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from leadline_client.errors import ComputationsBusy, InvalidRequest
from leadline_common.api.computations import LARGE_BODY_BYTES
from leadline_common.computing import MAX_WAITING
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


@pytest.mark.parametrize("question", ["placement", "reassignment"])
async def test_a_large_question_is_refused_unread_where_it_could_not_be_computed(
    question: str,
) -> None:
    app = openapi_app()
    app.state.computer._waiting = MAX_WAITING
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://controller") as http:
        url, small = f"/v1/what-if/{question}", {"no": "question"}
        large = small | {"padding": "x" * LARGE_BODY_BYTES}
        busy = (await http.post(url, json=large)).json()["error_code"]
        read = (await http.post(url, json=small)).json()["error_code"]
    assert (busy, read) == (ComputationsBusy.code, InvalidRequest.code)


async def test_what_if_reassignment(http: httpx.AsyncClient) -> None:
    """The example of KIP-435."""
    answer = await what_if(
        http,
        "reassignment",
        start=[0, 1, 2, 3, 4],
        target=[5, 6, 7, 8, 9],
        limits={"replica_movements": 2},
        min_insync_replicas=1,
        online=list(range(10)),
        algorithm="incremental",
    )
    assert answer == {
        "steps": [
            {"assignment": [5, 0, 1, 2, 3, 4], "added": [5], "dropped": [], "leader": 5},
            {"assignment": [5, 6, 2, 3, 4], "added": [6], "dropped": [0, 1], "leader": 5},
            {"assignment": [5, 6, 7, 8, 4], "added": [7, 8], "dropped": [2, 3], "leader": 5},
            {"assignment": [5, 6, 7, 8, 9], "added": [9], "dropped": [4], "leader": 5},
        ],
        "waiting_for": [],
    }


async def test_what_if_reassignment_waits_for_offline_brokers(http: httpx.AsyncClient) -> None:
    question = {"start": [0, 1], "target": [0, 2], "online": [0, 1]}
    nothing = {"steps": [], "waiting_for": [2]}
    assert await what_if(http, "reassignment", **question) == nothing
    assert await what_if(http, "reassignment", **question, algorithm="legacy") == nothing


async def test_what_if_reassignment_in_batches(http: httpx.AsyncClient) -> None:
    """One leader may move at a time; free places go to partitions whose leader stays."""
    rows = [
        {"topic": "orders", "partition": 0, "start": [0, 1], "target": [0, 2]},
        {"topic": "orders", "partition": 1, "start": [0, 1], "target": [2, 1]},
        {"topic": "orders", "partition": 2, "start": [1, 0], "target": [2, 0]},
        {"topic": "orders", "partition": 3, "start": [1, 0], "target": [1, 3], "online": [0, 1]},
    ]
    answer = await what_if(
        http,
        "reassignment",
        batch=rows,
        limits={"partition_movements": 2, "leader_movements": 1},
    )
    numbers = [[step["partition"] for step in batch] for batch in answer["batches"]]
    assert numbers == [[1, 0], [2]]
    assert answer["batches"][0][0]["assignment"] == [2, 1]
    assert answer["waiting_for"] == [3]
    assert answer["waiting"] == [{"topic": "orders", "partition": 3, "waiting_for": [3]}]


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
        ("reassignment", {"start": [1]}, 40050),
        ("reassignment", {"start": [1, 1], "target": [2]}, 40050),
        ("reassignment", {"start": [], "target": [2]}, 40050),
        ("reassignment", {"start": [1], "target": [2], "isr": [3]}, 40050),
        ("reassignment", {"start": [1], "target": [2], "batch": []}, 40050),
        ("reassignment", {"start": [1], "target": [2], "limits": {"replica_movements": 0}}, 40050),
        (
            "reassignment",
            {"batch": [{"topic": "t", "partition": 0, "start": [1], "target": [2]}] * 2},
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


async def test_without_an_active_controller_everything_else_is_refused(
    http: httpx.AsyncClient,
) -> None:
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
    for question in ("election", "placement", "reassignment"):
        operation = document["paths"][f"/v1/what-if/{question}"]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        name = schema["$ref"].rpartition("/")[2]
        await what_if(http, question, **document["components"]["schemas"][name]["example"])


def _batch(partitions: int, replicas: int) -> dict[str, Any]:
    start, target = list(range(replicas)), list(range(100, 100 + replicas))
    rows = [
        {"topic": "t", "partition": number, "start": start, "target": target}
        for number in range(partitions)
    ]
    return {"batch": rows, "limits": {"replica_movements": 1}}


def _placement(brokers: int, partitions: int, factor: int, racks: int = 0) -> dict[str, Any]:
    rows = [{"id": n} | ({"rack": f"r{n % racks}"} if racks else {}) for n in range(brokers)]
    return {"brokers": rows, "partitions": partitions, "replication_factor": factor}


@pytest.mark.parametrize(
    ("question", "body", "says"),
    [
        ("placement", _placement(2_000, 1_000, 1_000), "at most 100000"),
        ("placement", _placement(5, 50_000, 3), "partitions x replication_factor"),
        ("placement", _placement(2_000, 2_001, 3, racks=2), "partitions x brokers"),
        ("placement", _placement(2_001, 1, 1), "body.brokers"),
        ("reassignment", _batch(500, 50), "at most 20000"),
        ("reassignment", _batch(1, 3) | {"online": [1] * 2_001}, "body.online"),
        (
            "election",
            {"kind": "offline", "assignment": [1], "live": list(range(2_001))},
            "body.live",
        ),
    ],
)
async def test_a_question_that_is_too_large_is_refused_and_the_limit_is_named(
    http: httpx.AsyncClient, question: str, body: dict[str, Any], says: str
) -> None:
    answer = await http.post(f"/v1/what-if/{question}", json=body)
    assert (answer.status_code, answer.json()["outcome"]) == (400, "refused")
    assert says in answer.text


async def test_a_large_question_is_answered_beside_the_event_loop(http: httpx.AsyncClient) -> None:
    brokers = [{"id": n, "rack": "a" if n else "b"} for n in range(2_000)]
    body = {"brokers": brokers, "partitions": 1_000, "replication_factor": 3}
    answer = await what_if(http, "placement", **body)
    assert all(0 in replicas for replicas in answer["assignment"].values()), "the other rack"
