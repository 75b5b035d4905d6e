"""The what-if answers over HTTP: they are those of the assignors, and bad questions are refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from leadline_client.errors import ComputationsBusy
from leadline_common.api.computations import LARGE_BODY_BYTES, provide_computer
from leadline_common.computing import MAX_WAITING, Computer
from leadline_common.http.app import create_app
from leadline_common.metrics import Metrics
from leadline_coordinator.api.what_if import WhatIfAssigned, WhatIfAssignment, what_if_routes

PATH = "/v1/what-if/assignment"
QUESTION: dict[str, Any] = {
    "assignor": "sticky",
    "topics": {"t": 4},
    "subscriptions": {"a": ["t"], "b": ["t"]},
}


async def ask(question: dict[str, Any], computer: Computer | None = None) -> httpx.Response:
    app = create_app(title="t", version="0", description="", metrics=Metrics())
    computer = computer or Computer()
    provide_computer(app, computer)
    app.include_router(what_if_routes(computer))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        return await client.post(PATH, json=question)


async def test_the_example_answers_the_example() -> None:
    asked = WhatIfAssignment.model_config["json_schema_extra"]
    answered = WhatIfAssigned.model_config["json_schema_extra"]
    assert isinstance(asked, dict)
    assert isinstance(answered, dict)

    answer = await ask(asked["example"])  # type: ignore[arg-type] # an example is an object

    assert answer.status_code == 200
    assert answer.json() == answered["example"]


async def test_a_large_question_is_refused_before_it_is_read_where_it_could_not_be_computed() -> (
    None
):
    busy = Computer()
    busy._waiting = MAX_WAITING
    large = QUESTION | {"topics": "no object", "subscriptions": {"a": ["t" * LARGE_BODY_BYTES]}}
    assert (await ask(large, busy)).json()["error_code"] == ComputationsBusy.code
    assert (await ask(large)).status_code == 400
    assert (await ask(QUESTION, busy)).status_code == 200


async def test_static_members_and_generations_are_heard() -> None:
    question = QUESTION | {
        "subscriptions": {"x2": ["t"], "b": ["t"]},
        "previous": {"x1": [["t", 1], ["t", 2]], "b": [["t", 0], ["t", 1], ["t", 3]]},
        "instance_ids": {"x1": "i", "x2": "i"},
        "generations": {"x1": 8, "b": 7},
    }

    answer = (await ask(question)).json()

    assert answer == {"assignment": {"x2": [["t", 1], ["t", 2]], "b": [["t", 0], ["t", 3]]}} | {
        "moved": 0
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"assignor": "fair"}, "body.assignor"),
        ({"topics": {"t": -1}}, "body.topics.t"),
        ({"topics": {"t": 20_000, "u": 1}}, "body"),
        ({"threads": {"a": 0}}, "body.threads.a"),
        ({"previous": {"a": [["t"]]}}, "body.previous.a.0.1"),
        ({"unknown": 1}, "body.unknown"),
        ({"subscriptions": {"a": [str(n) for n in range(100_001)]}}, "body"),
        ({"threads": {f"m{n}": 1_000 for n in range(101)}}, "body"),
        ({"topic_threads": {f"m{n}": {"t": 1_000} for n in range(101)}}, "body"),
        ({"previous": {"a": [["t", 0]] * 100_001}}, "body"),
    ],
)
async def test_a_bad_question_is_refused(change: dict[str, Any], field: str) -> None:
    answer = await ask(QUESTION | change)

    assert answer.status_code == 400
    assert answer.json()["outcome"] == "refused"
    assert answer.json()["fields"][0]["field"] == field
