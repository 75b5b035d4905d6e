"""The OpenAPI document that the framework writes, put into the house style.

Refusals have the house body, and parameters show as a person would fill them in.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from leadline_client.errors import BodyTooLarge, InvalidRequest, UnsupportedFormat
from leadline_common.http.errors import ErrorBody, error_responses

ERROR_SCHEMA: Final = {"$ref": "#/components/schemas/ErrorBody"}
_REFUSALS = (InvalidRequest,)
_BODY_REFUSALS = (InvalidRequest, BodyTooLarge, UnsupportedFormat)
_NULL = {"type": "null"}


def in_house_style(document: dict[str, Any]) -> None:
    """Change a document of the framework's own routes, in place."""
    for operation in _operations_of(document):
        _refuse_as_the_house_does(operation)
        for parameter in operation.get("parameters", []):
            _show_as_filled_in(parameter)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    definitions = ErrorBody.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(definitions.pop("$defs"))
    schemas["ErrorBody"] = definitions


def add_any_other_error(document: dict[str, Any]) -> None:
    """Say of every operation that whatever else fails has the house body too."""
    other = {
        "description": "Any other error of the table",
        "content": {"application/json": {"schema": ERROR_SCHEMA}},
    }
    for operation in _operations_of(document):
        operation["responses"].setdefault("default", deepcopy(other))


def _refuse_as_the_house_does(operation: dict[str, Any]) -> None:
    """Put the house's refusals where the framework documents its own."""
    answers = operation["responses"]
    unprocessable = answers.pop("422", None)
    if unprocessable is None:
        return
    if "examples" in unprocessable["content"]["application/json"]:  # the house has stated it
        answers["422"] = unprocessable
    refusals = _BODY_REFUSALS if "requestBody" in operation else _REFUSALS
    for status, refused in error_responses(*refusals).items():
        del refused["model"]
        refused["content"]["application/json"]["schema"] = ERROR_SCHEMA
        answers[str(status)] = _joined(refused, answers.get(str(status)))
    operation["responses"] = dict(sorted(answers.items()))


def _joined(answer: dict[str, Any], stated: dict[str, Any] | None) -> dict[str, Any]:
    """Return one answer with the examples of both; the stated ones come first."""
    if stated is None:
        return answer
    shown = stated["content"]["application/json"].get("examples", {})
    examples = shown | answer["content"]["application/json"]["examples"]
    content = {"application/json": {"schema": ERROR_SCHEMA, "examples": examples}}
    return {**stated, "description": ", ".join(examples), "content": content}


def _show_as_filled_in(parameter: dict[str, Any]) -> None:
    """Offer a required parameter's example, and forget that an optional one may be null.

    Swagger UI fills in an example of the parameter, not one of its schema; and
    nothing in a path or a query can be null: it is left out.
    """
    schema = parameter["schema"]
    if parameter.get("required") and "examples" in schema:
        parameter["example"] = schema.pop("examples")[0]
    choices = [choice for choice in schema.get("anyOf", []) if choice != _NULL]
    if len(choices) == 1:
        del schema["anyOf"]
        schema.update(choices[0])


def _operations_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for item in document["paths"].values():
        yield from item.values()
