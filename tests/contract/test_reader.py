"""How the contract tests read a document: its example requests, and responses that differ."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.openapi.document import Call, Described, operations_of

DOCUMENT: dict[str, Any] = {
    "paths": {
        "/v1/things/{name}": {
            "post": {
                "operationId": "make",
                "tags": ["things"],
                "parameters": [
                    {"name": "name", "in": "path", "schema": {"type": "string"}, "example": "a/b"},
                    {"name": "wait", "in": "query", "schema": {"type": "string", "default": "0s"}},
                    {"name": "after", "in": "query", "schema": {"type": "integer"}},
                ],
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/T"}}}
                },
                "responses": {
                    "200": {
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/T"}}
                        }
                    },
                    "204": {},
                },
            }
        }
    },
    "components": {
        "schemas": {
            "T": {
                "type": "object",
                "properties": {"size": {"type": "integer"}},
                "required": ["size"],
                "example": {"size": 3},
            }
        }
    },
}


@pytest.fixture
def make() -> Described:
    return next(operations_of(DOCUMENT))


def test_the_example_fills_in_what_the_document_shows(make: Described) -> None:
    assert make.example() == Call(
        path={"name": "a/b"},
        query=[("wait", "0s")],
        headers={"content-type": "application/json"},
        content=b'{"size": 3}',
    )


def test_an_example_is_sent_to_the_path_that_it_names(make: Described) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.raw_path == b"/v1/things/a%2Fb?wait=0s"
        return httpx.Response(200, json={"size": 3})

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        assert make.problems_of(make.send(client, "http://here", make.example())) == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (httpx.Response(418, json={"size": 1}), "the status 418 is not documented"),
        (
            httpx.Response(200, text="3"),
            "the media type text/plain;charset=utf-8 is not documented",
        ),
        (httpx.Response(204, json={}), "a body that is not documented: {}"),
        (httpx.Response(200, json={}), "the body: 'size' is a required property"),
        (httpx.Response(200, json={"size": "x"}), "size: 'x' is not of type 'integer'"),
        (
            httpx.Response(200, json={"size": 1, "more": 2}),
            "the body: Additional properties are not allowed ('more' was unexpected)",
        ),
    ],
)
def test_a_response_that_is_not_documented_is_reported(
    make: Described, answer: httpx.Response, problem: str
) -> None:
    assert make.problems_of(answer) == [problem]
