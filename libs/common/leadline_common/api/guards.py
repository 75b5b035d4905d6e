"""The conditional and idempotent requests of the administration.

Every route treats the headers `If-Match` and `Idempotency-Key` alike. This module maps
routes to the resources that their ETags name, and documents the headers. The controller
applies them, in one layer around its routes.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final, Literal, NamedTuple

from fastapi.routing import APIRoute

from leadline_client.errors import (
    IdempotencyKeyReused,
    LeadlineError,
    RequestInDoubt,
    RequestUnderWay,
    StaleVersion,
)
from leadline_common.http.errors import (
    Responses,
    error_responses,
    is_read_only,
    merge_error_responses,
)
from leadline_common.http.operation import Parameter, document_parameter
from leadline_common.http.router import ServiceRouter

IF_MATCH: Final = "If-Match"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"

Kind = Literal[
    "topic", "topic configs", "broker", "broker configs", "configs", "task", "user", "cluster"
]


class GuardedResource(NamedTuple):
    """A resource with an ETag: its kind, and the path parameter that holds its name."""

    kind: Kind
    parameter: str = ""


_TOPIC = GuardedResource("topic", "topic")
_USER = GuardedResource("user", "user")
_CLUSTER = GuardedResource("cluster")
_RESOURCES: Final = {
    "/v1/topics/{topic}": _TOPIC,
    "/v1/topics/{topic}/partitions": _TOPIC,
    "/v1/topics/{topic}/configs": GuardedResource("topic configs", "topic"),
    "/v1/reassignments/{topic}/{partition}": _TOPIC,
    "/v1/brokers/{broker_id}": GuardedResource("broker", "broker_id"),
    "/v1/brokers/{broker_id}/drain": GuardedResource("broker", "broker_id"),
    "/v1/brokers/{broker_id}/configs": GuardedResource("broker configs", "broker_id"),
    "/v1/configs": GuardedResource("configs"),
    "/v1/tasks/{task_id}": GuardedResource("task", "task_id"),
    "/v1/users/{user}": _USER,
    "/v1/users/{user}/grants": _USER,
    "/v1/users/{user}/quotas": _USER,
    "/v1/elections": _CLUSTER,
    "/v1/reassignments": _CLUSTER,
}
"""The resource whose version guards a route. `cluster` is the metadata document."""

_READS: Final = {path: found for path, found in _RESOURCES.items() if found is not _CLUSTER}
_KEY_DESCRIPTION: Final = (
    "A unique key of the request, chosen by the caller. When a request is repeated with the same "
    "key within idempotency.retention.ms, the server returns the first response again, with "
    f"`{REPLAYED}: true`, and does not repeat the change. A refused request frees its key. 1 to "
    "255 printable ASCII characters."
)
_RESOURCE_DESCRIPTIONS: Final = {
    "cluster": "the metadata document (`GET /v1/metadata`)",
    "topic": "the topic (`GET /v1/topics/{topic}`): its id and replica assignment",
    "topic configs": "the topic's own settings",
    "broker": "the broker (`GET /v1/brokers/{broker_id}`): its incarnation",
    "broker configs": "the broker's own settings",
    "configs": "the cluster's own settings",
    "task": "the task (`GET /v1/tasks/{task_id}`)",
    "user": "the user (`GET /v1/users/{user}`), which its field `version` has, too",
}


WITHOUT_KEYS: Final = frozenset({"/v1/users/{user}/tokens"})
"""Routes that take no idempotency key: the response would be kept, and it has a secret."""


def changes_something(method: str, endpoint: Any) -> bool:
    """Return whether a route may change the cluster."""
    return method in ("POST", "PATCH", "PUT", "DELETE") and not is_read_only(endpoint)


def resource_of(path: str, method: str) -> GuardedResource | None:
    """Return the resource whose ETag a route accepts or returns, by its path template."""
    return (_READS if method == "GET" else _RESOURCES).get(path)


def document_guards(router: ServiceRouter) -> None:
    """Document the ETags and headers of the routes in OpenAPI, with their errors."""
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


def _document_etag(route: APIRoute, resource: GuardedResource) -> None:
    description = f"The version of {_RESOURCE_DESCRIPTIONS[resource.kind]}, for `{IF_MATCH}`"
    headers = {"ETag": {"description": description, "schema": {"type": "string"}}}
    responses: Responses = deepcopy(route.responses)
    responses.setdefault(200, {}).setdefault("headers", {}).update(headers)
    route.responses = responses


def _document_change(route: APIRoute, resource: GuardedResource | None) -> None:
    errors: list[type[LeadlineError]] = [RequestUnderWay, RequestInDoubt, IdempotencyKeyReused]
    parameters = []
    if route.path in WITHOUT_KEYS:
        errors = []
    else:
        parameters.append(_header(IDEMPOTENCY_KEY, _KEY_DESCRIPTION))
    if resource is not None:
        described = _RESOURCE_DESCRIPTIONS[resource.kind]
        parameters.append(
            _header(
                IF_MATCH,
                f"Refuse the change unless this is the ETag of {described}; `*` matches any",
            )
        )
        errors.append(StaleVersion)
    extra = dict(route.openapi_extra or {})
    extra["parameters"] = [*extra.get("parameters", []), *parameters]
    route.openapi_extra = extra
    responses = deepcopy(route.responses)
    merge_error_responses(responses, error_responses(*errors))
    route.responses = responses


def _header(name: str, description: str) -> dict[str, Any]:
    # Without an example, because Swagger UI would send it with every request.
    return document_parameter(Parameter(name, description, {"type": "string"}, "header"))
