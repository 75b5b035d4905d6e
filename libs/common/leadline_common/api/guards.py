"""What guards the changes of an operator: `If-Match`, and `Idempotency-Key`.

Both are headers that every route of the administration treats alike, so they are
declared once, over the routes: this module says which resource a route changes, and
documents the headers. The controller heeds them, in one layer around its routes.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final, Literal, NamedTuple

from fastapi import APIRouter
from fastapi.routing import APIRoute

from leadline_client.errors import (
    IdempotencyKeyReused,
    LeadlineError,
    RequestInDoubt,
    RequestUnderWay,
    StaleVersion,
)
from leadline_common.http.errors import error_responses, is_read_only, merge_error_responses

IF_MATCH: Final = "If-Match"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"

Kind = Literal["topic", "topic configs", "broker", "broker configs", "configs", "task", "cluster"]


class Resource(NamedTuple):
    """What an ETag names: the kind, and the parameter of the path that holds its name."""

    kind: Kind
    parameter: str = ""


_TOPIC = Resource("topic", "topic")
_CLUSTER = Resource("cluster")
_RESOURCES: Final = {
    "/v1/topics/{topic}": _TOPIC,
    "/v1/topics/{topic}/partitions": _TOPIC,
    "/v1/topics/{topic}/configs": Resource("topic configs", "topic"),
    "/v1/reassignments/{topic}/{partition}": _TOPIC,
    "/v1/brokers/{broker_id}": Resource("broker", "broker_id"),
    "/v1/brokers/{broker_id}/drain": Resource("broker", "broker_id"),
    "/v1/brokers/{broker_id}/configs": Resource("broker configs", "broker_id"),
    "/v1/configs": Resource("configs"),
    "/v1/tasks/{task_id}": Resource("task", "task_id"),
    "/v1/elections": _CLUSTER,
    "/v1/reassignments": _CLUSTER,
}
"""Which resource's version guards a route. `cluster` is the metadata document."""

_READS: Final = {path: found for path, found in _RESOURCES.items() if found is not _CLUSTER}
_KEY_WORDS: Final = (
    "A name of the caller's choice for this very request, so that it can be repeated when no "
    "answer came: within idempotency.retention.ms the first answer is given again, with "
    f"`{REPLAYED}: true`, and nothing is done twice. A refusal frees the key. 1 to 255 printable "
    "ASCII characters."
)
_ETAG_WORDS: Final = {
    "cluster": "the metadata document (`GET /v1/metadata`)",
    "topic": "the topic (`GET /v1/topics/{topic}`): its id and replica assignment",
    "topic configs": "the topic's own settings",
    "broker": "the broker (`GET /v1/brokers/{broker_id}`): its incarnation",
    "broker configs": "the broker's own settings",
    "configs": "what is set for the cluster",
    "task": "the task (`GET /v1/tasks/{task_id}`)",
}


def changes_something(method: str, endpoint: Any) -> bool:
    """Tell whether a route may change the cluster."""
    return method in ("POST", "PATCH", "PUT", "DELETE") and not is_read_only(endpoint)


def resource_of(path: str, method: str) -> Resource | None:
    """Return the resource whose ETag a route takes or gives, by the template of its path."""
    return (_READS if method == "GET" else _RESOURCES).get(path)


def document_guards(router: APIRouter) -> None:
    """Say in OpenAPI which headers the routes heed, and how they refuse."""
    for route in router.routes:
        if not isinstance(route, APIRoute):
            continue
        method = min(route.methods or ("GET",))
        resource = resource_of(route.path, method)
        if method == "GET":
            if resource is not None:
                _document_etag(route, resource)
        elif changes_something(method, route.endpoint):
            _document_change(route, resource)


def _document_etag(route: APIRoute, resource: Resource) -> None:
    words = f"The version of {_ETAG_WORDS[resource.kind]}, for `{IF_MATCH}`"
    headers = {"ETag": {"description": words, "schema": {"type": "string"}}}
    responses: dict[int | str, dict[str, Any]] = deepcopy(route.responses)
    responses.setdefault(200, {}).setdefault("headers", {}).update(headers)
    route.responses = responses


def _document_change(route: APIRoute, resource: Resource | None) -> None:
    errors: list[type[LeadlineError]] = [RequestUnderWay, RequestInDoubt, IdempotencyKeyReused]
    parameters = [_parameter(IDEMPOTENCY_KEY, _KEY_WORDS)]
    if resource is not None:
        words = f"Refuse, unless this is still the ETag of {_ETAG_WORDS[resource.kind]}; `*` is any"
        parameters.append(_parameter(IF_MATCH, words))
        errors.append(StaleVersion)
    extra = dict(route.openapi_extra or {})
    extra["parameters"] = [*extra.get("parameters", []), *parameters]
    route.openapi_extra = extra
    responses = deepcopy(route.responses)
    merge_error_responses(responses, error_responses(*errors))
    route.responses = responses


def _parameter(name: str, words: str) -> dict[str, Any]:
    # Without an example: a page that fills it in would send the same key with every request.
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": words,
        "schema": {"type": "string"},
    }
