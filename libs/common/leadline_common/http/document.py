"""The OpenAPI document: from what the framework writes to what Leadline publishes.

Errors have Leadline's format, each error response and its examples appear once among the
components, and parameters show an example that a reader can send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from leadline_client.errors import BodyTooLarge, InvalidRequest, UnsupportedFormat
from leadline_common.http.errors import (
    ERROR_SCHEMA,
    ErrorBody,
    error_responses,
    merge_error_responses,
)

_COMPONENTS: Final = "#/components/"
COMPONENT: Final = "x-component"
"""The member of a response that a route declares with the name of the component to make of it."""
SCHEMA_REF: Final = "#/components/schemas/{model}"
_NATIVE = "/v1/"
_INVALID = (InvalidRequest,)
_INVALID_BODY = (InvalidRequest, BodyTooLarge, UnsupportedFormat)
_NULL = {"type": "null"}
_OTHER_ERROR = "OtherError"
_JSON = "application/json"


def apply_error_format(document: dict[str, Any]) -> None:
    """Document Leadline's errors where the framework documents its own, in place."""
    for path, operation in _placed_operations_of(document):
        _replace_validation_errors(operation, is_strict=path.startswith(_NATIVE))
        for parameter in operation.get("parameters", []):
            _simplify_parameter(parameter)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    error_body = ErrorBody.model_json_schema(ref_template=SCHEMA_REF)
    schemas.update(error_body.pop("$defs"))
    schemas["ErrorBody"] = error_body


def share_error_responses(document: dict[str, Any]) -> None:
    """Move each error response and example to the components, and refer to them, in place.

    Every operation also gets a `default` response, for all errors that it does not list.

    Raises:
        ValueError: two examples or two responses of one name differ.

    """
    for operation in _operations_of(document):
        responses = operation["responses"]
        responses.setdefault("default", _other_error())
        for status, response in responses.items():
            if COMPONENT in response:
                name = response.pop(COMPONENT)
                add_components(document, "responses", {name: response})
                responses[status] = {"$ref": f"#/components/responses/{name}"}
            elif response.get("content", {}).get(_JSON, {}).get("schema") == ERROR_SCHEMA:
                responses[status] = _shared_response(document, response)


def add_components(document: dict[str, Any], kind: str, found: Mapping[str, Any]) -> None:
    """Add components of one kind, such as `schemas`, sorted by name.

    Raises:
        ValueError: the document has another component of the same name.

    """
    components = document.setdefault("components", {})
    known = components.setdefault(kind, {})
    for name, component in found.items():
        if known.setdefault(name, component) != component:
            raise ValueError(f"two {kind} are named {name}")
    components[kind] = dict(sorted(known.items()))


def with_authentication(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that says how to show a token; a cluster may ask for none."""
    schemes = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token: `ID.SECRET`."},
        "basic": {"type": "http", "scheme": "basic", "description": "A token's ID and SECRET."},
    }
    components = {**document["components"], "securitySchemes": schemes}
    return {**document, "components": components, "security": [{}, {"token": []}, {"basic": []}]}


def with_cluster_id(document: dict[str, Any], cluster_id: str) -> dict[str, Any]:
    """Return a document whose examples name this cluster, so that a reader can send them."""
    shown = deepcopy(document)
    for operation in _operations_of(shown):
        for parameter in operation.get("parameters", ()):
            if parameter["name"] == "cluster_id":
                parameter["example"] = cluster_id
    return shown


def split_by_tag(document: dict[str, Any], tag: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two documents: of the operations that have a tag, and of all others."""
    return (
        part_of(document, lambda operation: tag in operation["tags"]),
        part_of(document, lambda operation: tag not in operation["tags"]),
    )


def part_of(document: dict[str, Any], belongs: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return a document of some operations, with the tags and the components that they use."""
    paths = {
        path: kept
        for path, item in document["paths"].items()
        if (kept := {method: found for method, found in item.items() if belongs(found)})
    }
    used = {
        tag for item in paths.values() for operation in item.values() for tag in operation["tags"]
    }
    tags = [tag for tag in document.get("tags", ()) if tag["name"] in used]
    components = _components_of(paths, document["components"])
    return {**document, "paths": paths, "components": components, "tags": tags}


def _components_of(paths: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return the components that paths refer to, directly or through other components."""
    found: set[str] = set()
    left = list(_references(paths))
    while left:
        reference = left.pop()
        if reference not in found:
            found.add(reference)
            kind, name = reference.split("/")
            left += _references(known[kind][name])
    return {
        kind: {name: part for name, part in parts.items() if f"{kind}/{name}" in found}
        for kind, parts in known.items()
    }


def _references(node: Any) -> Iterator[str]:
    """Yield `kind/name` of every component that a part of a document refers to."""
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_COMPONENTS)
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _references(child)


def _shared_response(document: dict[str, Any], response: dict[str, Any]) -> dict[str, str]:
    content = response["content"][_JSON]
    # By code, so that operations which list the same errors in another order share a response.
    examples = dict(
        sorted(
            content.get("examples", {}).items(),
            key=lambda example: (example[1]["value"]["error_code"], example[0]),
        )
    )
    add_components(document, "examples", examples)
    body: dict[str, Any] = {"schema": ERROR_SCHEMA}
    if examples:
        body["examples"] = {name: {"$ref": f"#/components/examples/{name}"} for name in examples}
    description = ", ".join(examples) or response["description"]
    shared = {**response, "description": description, "content": {_JSON: body}}
    name = "Or".join(examples) or _OTHER_ERROR
    add_components(document, "responses", {name: shared})
    return {"$ref": f"#/components/responses/{name}"}


def _other_error() -> dict[str, Any]:
    description = (
        "Any other error; see the table of error codes. Every route may refuse a request because "
        "of who sends it (401, 403), because a quota is used up (429), for its Host or its origin "
        "(403), its length (413, 414, 431), its slowness (408), or because of too many "
        "connections or bodies (503)."
    )
    return {"description": description, "content": {_JSON: {"schema": ERROR_SCHEMA}}}


def _replace_validation_errors(operation: dict[str, Any], *, is_strict: bool) -> None:
    """Document what is refused; a strict route refuses parameters, also where it has none."""
    responses = operation["responses"]
    if "default" in responses:  # an API with errors of its own
        return
    unprocessable = responses.pop("422", None)
    if unprocessable is None and not is_strict:
        return
    if unprocessable is not None and "examples" in unprocessable["content"][_JSON]:
        responses["422"] = unprocessable  # Leadline's own, not the framework's
    errors = _INVALID_BODY if "requestBody" in operation else _INVALID
    invalid = {str(status): found for status, found in error_responses(*errors).items()}
    merge_error_responses(responses, invalid)
    operation["responses"] = dict(sorted(responses.items()))


def _simplify_parameter(parameter: dict[str, Any]) -> None:
    """Give a required parameter an example, and an optional one a type without null.

    Swagger UI fills in the example of a parameter, not one of its schema. A parameter of
    a path or query cannot be null: it is left out.
    """
    schema = parameter["schema"]
    if parameter.get("required") and "examples" in schema:
        parameter["example"] = schema.pop("examples")[0]
    choices = [choice for choice in schema.get("anyOf", []) if choice != _NULL]
    if len(choices) == 1:
        del schema["anyOf"]
        schema.update(choices[0])


def _operations_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _, operation in _placed_operations_of(document):
        yield operation


def _placed_operations_of(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each operation with its path."""
    for path, item in document["paths"].items():
        for operation in item.values():
            yield path, operation
