"""The rules for OpenAPI documents, as a list of what breaks them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from leadline_client.errors import ERRORS_BY_CODE
from leadline_common.http.operation import INTERNAL

METHODS = ("get", "put", "post", "delete", "patch")
ERROR_SCHEMA = {"$ref": "#/components/schemas/ErrorBody"}
SHARED = ("#/components/responses/", "#/components/examples/")


def resolved(node: Any, document: dict[str, Any]) -> Any:
    """Return a part of a document with the shared responses and examples in their places."""
    if isinstance(node, list):
        return [resolved(item, document) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref", "")
    if not (isinstance(reference, str) and reference.startswith(SHARED)):
        return {name: resolved(value, document) for name, value in node.items()}
    _, kind, name = reference.removeprefix("#/").split("/")
    return resolved(document["components"][kind][name], document)


def check_valid(document: dict[str, Any]) -> None:
    """Raise what the validator raises for a document that is not OpenAPI 3.1."""
    # It takes seconds to import: only the process that uses it does.
    import_module("openapi_spec_validator").OpenAPIV31SpecValidator(document).validate()


def problems_of(document: dict[str, Any]) -> list[str]:
    """Return what the document lacks, each problem with its operation."""
    return [
        f"{method.upper()} {path}: {problem}"
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
        for problem in _problems(path, resolved(operation, document), document)
    ]


def _problems(path: str, operation: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    for part in ("summary", "description", "tags", "operationId"):
        if not operation.get(part):
            yield f"no {part}"
    described = {tag["name"] for tag in document.get("tags", [])}
    for tag in operation.get("tags", []):
        if tag not in described:
            yield f"the tag {tag} is not described"
    yield from _parameter_problems(operation)
    if "requestBody" in operation:
        yield from _body_problems("request", operation["requestBody"])
    yield from _answer_problems(operation, own=path.startswith("/v1"))
    public = INTERNAL not in operation.get("tags", [])
    if public and not _has_example(operation, document):
        yield "no example"


def _parameter_problems(operation: dict[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", []):
        if not parameter.get("description"):
            yield f"the parameter {parameter['name']} is not described"
        if not parameter.get("schema"):
            yield f"the parameter {parameter['name']} has no type"


def _body_problems(which: str, body: dict[str, Any]) -> Iterator[str]:
    for media_type, content in body.get("content", {}).items():
        if "json" in media_type and not content.get("schema"):
            yield f"the {which} body in {media_type} has no type"


def _answer_problems(operation: dict[str, Any], *, own: bool) -> Iterator[str]:
    for status, answer in operation["responses"].items():
        if status.startswith(("2", "3")):
            yield from _body_problems(f"{status} answer", answer)
        elif own:
            yield from _error_problems(status, answer)
    if not any(status.startswith(("4", "5", "default")) for status in operation["responses"]):
        yield "no error answers"


def _error_problems(status: str, answer: dict[str, Any]) -> Iterator[str]:
    content = answer.get("content", {}).get("application/json", {})
    if content.get("schema") != ERROR_SCHEMA:
        yield f"the {status} answer is not in Leadline's error format"
    for name, example in content.get("examples", {}).items():
        kind = ERRORS_BY_CODE.get(example["value"]["error_code"])
        if kind is None:
            yield f"the {status} example {name} has a code that is not in the table"
        elif str(kind("").status) != status:
            yield f"the {status} example {name} belongs to status {kind('').status}"


def _has_example(operation: dict[str, Any], document: dict[str, Any]) -> bool:
    successes = [a for s, a in operation["responses"].items() if s.startswith("2")]
    bodies = [*successes, operation.get("requestBody", {})]
    contents = [content for body in bodies for content in body.get("content", {}).values()]
    shown = [*contents, *operation.get("parameters", [])]
    shown += [_schema_of(one["schema"], document) for one in shown if "schema" in one]
    return any("example" in one or "examples" in one for one in shown)


def _schema_of(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = document["components"]["schemas"].get(name, schema)
    return found
