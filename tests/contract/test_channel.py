"""The channel's AsyncAPI document: committed, complete, and consistent with the frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from leadline_client import channel
from leadline_coordinator.main import asyncapi_document

COMMITTED = Path(__file__).resolve().parents[2] / "openapi" / "coordinator-channel.json"
KINDS = (*channel.FROM_CONSUMER, *channel.FROM_COORDINATOR)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(asyncapi_document()))
    return found


def validator(document: dict[str, Any], name: str) -> OAS31Validator:
    """Return the validator of one message's payload, with the document for its references."""
    root = {"$ref": document["components"]["messages"][name]["payload"]["$ref"]}
    return OAS31Validator(root | {"components": document["components"]})


def test_it_is_the_committed_one(document: dict[str, Any]) -> None:
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == document


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            here = [node["$ref"]] if "$ref" in node else []
            return here + [one for value in node.values() for one in references(value)]
        if isinstance(node, list):
            return [one for value in node for one in references(value)]
        return []

    for reference in references(document):
        target: Any = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type)
def test_every_frame_is_described_with_an_example_that_the_code_reads(
    document: dict[str, Any], kind: type[Any]
) -> None:
    message = document["components"]["messages"][kind.type]

    assert message["summary"]
    assert message["description"]
    for example in message["examples"]:
        validator(document, kind.type).validate(example["payload"])
        frame = channel.decode(json.dumps(example["payload"]))
        assert isinstance(frame, kind)
        assert json.loads(channel.encode(frame)) == example["payload"]
    assert message["examples"]


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("ping", {"type": "ping", "id": "1"}),
        ("hello", {"type": "hello", "topics": "orders"}),
        ("hello", {"type": "hello", "assignor": "dice"}),
        ("stop", {"type": "stop", "id": 1, "coordinator_epoch": 1, "generation": 1, "attempt": 1}),
        ("pong", {"type": "ping", "id": 1, "coordinator_epoch": 1, "generation": 1}),
    ],
)
def test_what_the_code_refuses_the_document_refuses(
    document: dict[str, Any], name: str, payload: dict[str, Any]
) -> None:
    assert not validator(document, name).is_valid(payload)
