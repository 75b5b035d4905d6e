"""OpenAPI for routes that the web framework does not parse: bulk RPC and raw record batches.

Such a route declares its `Operation`, and the application adds it to the document. Bodies
are octets, or msgspec structs, dataclasses or pydantic models, which have schemas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec
from pydantic import BaseModel

from leadline_client.errors import InvalidRequest, LeadlineError
from leadline_common.http.document import SCHEMA_REF, add_components
from leadline_common.http.errors import error_responses

OCTETS = "application/octet-stream"
INTERNAL = "internal"
"""The tag of operations that only services call."""
REF = "#/components/schemas/{name}"

Schemas = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Body:
    """A request or response body in one media type.

    `type` is None for octets. `example` is an example of the body, which JSON can represent.
    """

    media_type: str
    description: str
    type: Any = None
    example: Any = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the path or the query, or a header of the response."""

    name: str
    description: str
    schema: Mapping[str, Any]
    place: str = "query"
    required: bool = False
    example: Any = None


@dataclass(frozen=True, slots=True)
class Operation:
    """The documentation of one method of one path.

    `requests` and `responses` list one body per media type. `errors` are those of the route
    besides InvalidRequest, which every route may raise. `more_responses` are further successes by
    status.
    """

    method: str
    path: str
    name: str
    summary: str
    description: str
    tags: Sequence[str]
    requests: Sequence[Body] = ()
    responses: Sequence[Body] = ()
    parameters: Sequence[Parameter] = ()
    answer_headers: Sequence[Parameter] = ()
    errors: Sequence[type[LeadlineError]] = ()
    status: int = 200
    more_responses: Mapping[int, Body] = field(default_factory=dict)


def add_operation(document: dict[str, Any], operation: Operation) -> None:
    """Add an operation, and the schemas that it needs, to an OpenAPI document."""
    schemas: Schemas = {}
    described: dict[str, Any] = {
        "tags": list(operation.tags),
        "summary": operation.summary,
        "description": operation.description,
        "operationId": operation.name,
    }
    if operation.parameters:
        described["parameters"] = [document_parameter(one) for one in operation.parameters]
    if operation.requests:
        content = _content(operation.requests, schemas)
        described["requestBody"] = {"required": True, "content": content}
    described["responses"] = _responses(operation, schemas)
    document["paths"].setdefault(operation.path, {})[operation.method.lower()] = described
    add_components(document, "schemas", schemas)


def document_parameter(parameter: Parameter) -> dict[str, Any]:
    """Return the OpenAPI object of a parameter."""
    described = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
    return described if parameter.example is None else described | {"example": parameter.example}


def _responses(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    success: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if operation.responses:
        success["content"] = _content(operation.responses, schemas)
        success["description"] = operation.responses[0].description
    if operation.answer_headers:
        success["headers"] = {
            one.name: {"description": one.description, "schema": dict(one.schema)}
            for one in operation.answer_headers
        }
    further = {
        status: {"description": body.description, "content": _content([body], schemas)}
        for status, body in operation.more_responses.items()
    }
    answers = (
        {operation.status: success} | further | error_responses(InvalidRequest, *operation.errors)
    )
    return {str(status): answer for status, answer in answers.items()}


def _content(bodies: Sequence[Body], schemas: Schemas) -> dict[str, Any]:
    content = {}
    for body in bodies:
        schema = _schema(body.type, schemas) if body.type is not None else _octets(body)
        content[body.media_type] = {"schema": schema}
        if body.example is not None:
            content[body.media_type]["example"] = msgspec.to_builtins(body.example)
    return content


def _octets(body: Body) -> dict[str, Any]:
    # OpenAPI 3.1 needs no type of octets, but without it client generators refuse the body, or
    # encode it as JSON.
    return {"type": "string", "format": "binary", "description": body.description}


def _schema(kind: Any, schemas: Schemas) -> dict[str, Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        schema = kind.model_json_schema(ref_template=SCHEMA_REF)
        schemas.update(schema.pop("$defs", {}))
        schemas[kind.__name__] = schema
        return {"$ref": REF.format(name=kind.__name__)}
    (reference,), components = msgspec.json.schema_components([kind], ref_template=REF)
    schemas.update(_without_false(components))
    return dict(reference)


def _without_false(node: Any) -> Any:
    """Return schemas without `items: false`, which client generators do not read.

    msgspec writes it for tuples, whose `maxItems` says the same.
    """
    if isinstance(node, list):
        return [_without_false(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        name: _without_false(value)
        for name, value in node.items()
        if not (name == "items" and value is False)
    }
