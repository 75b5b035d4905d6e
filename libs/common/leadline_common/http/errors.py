"""Leadline's error format: one body and one table of codes for every failure of every service.

    {"error_code": 42150, "message": "...", "outcome": "refused", "retriable": true, ...details}

The codes come from the error tree of `leadline_client.errors`. Only this module turns
exceptions into responses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from leadline_client.errors import (
    BodyTooLarge,
    FencedLeaderEpoch,
    Forbidden,
    InternalError,
    InvalidRequest,
    LeaderHint,
    LeadlineError,
    MethodNotAllowed,
    NotFound,
    NotLeader,
    QuotaExceeded,
    StoreOutcomeUnknown,
    Unauthorized,
    UnsupportedFormat,
)
from leadline_common.plain_json import encodable
from leadline_common.tracing import spans

RETRY_AFTER_S = 1
"""The value of `Retry-After` on a retriable 503."""

ERROR_SCHEMA: Final = {"$ref": "#/components/schemas/ErrorBody"}

_BY_STATUS: dict[int, type[LeadlineError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    413: BodyTooLarge,
    415: UnsupportedFormat,
}
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_READ_ONLY = "__leadline_read_only__"

Responses = dict[int | str, dict[str, Any]]
"""The documented `responses` of a route, by status."""

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class LeaderBody(BaseModel):
    """The leader that the refusing server knows; its id is -1 if there is none."""

    id: int
    url: str
    epoch: int
    topic_id: str = Field(
        default="",
        description="The id of the topic to which the epoch belongs; empty if it is unknown",
    )


class FieldProblem(BaseModel):
    """One field that was refused."""

    field: str = Field(description="`body.`, `query.` or `path.`, and the path of the field")
    message: str


class ErrorBody(BaseModel):
    """The body of every error response."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"example": InternalError("internal error").body()},
    )

    error_code: int = Field(description="A stable code; its first three digits are the HTTP status")
    message: str
    outcome: Literal["refused", "unknown"] = Field(
        description="`refused`: nothing was or will be changed. `unknown`: the change may or may "
        "not have been made"
    )
    retriable: bool = Field(description="True if the same request may succeed later")
    leader: LeaderBody | None = Field(
        default=None, description="The leader, which accepts the request"
    )
    fields: list[FieldProblem] | None = Field(default=None, description="The refused fields")


def read_only(endpoint: Endpoint) -> Endpoint:
    """Declare that a POST endpoint changes nothing: its internal errors are refusals."""
    setattr(endpoint, _READ_ONLY, True)
    return endpoint


def is_read_only(endpoint: Callable[..., Any] | None) -> bool:
    """Return whether an endpoint was declared to change nothing."""
    return getattr(endpoint, _READ_ONLY, False)


def error_response(error: LeadlineError, headers: dict[str, str] | None = None) -> Response:
    """Return the response for an error; never raises, whatever the error quotes."""
    if spans.is_on():
        spans.current_span().set(
            {"leadline.error_code": error.code, "leadline.outcome": error.outcome}
        )
    answer = Response(
        _encoded(error.body()),
        status_code=error.status,
        headers=headers,
        media_type="application/json",
    )
    answer.headers.update(retry_after(error))
    return answer


def retry_after(error: LeadlineError) -> dict[str, str]:
    """Return the header that says when to try again, if that is worth it."""
    if error.retriable and error.status == 503:
        return {"Retry-After": str(RETRY_AFTER_S)}
    if error.retry_after_s:
        return {"Retry-After": str(math.ceil(error.retry_after_s))}
    return {}


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return msgspec.json.encode(encodable(body))


def unexpected_error(scope: Scope, message: str) -> LeadlineError:
    """Return the error for an unexpected failure, without internal details.

    A failed read is a refusal, as it has no effect. A failed write may have taken effect, so
    its outcome is unknown: any other outcome could make a client repeat or drop the change.
    """
    safe = scope["method"] in _SAFE_METHODS or is_read_only(scope.get("endpoint"))
    if safe:
        return InternalError(message)
    return StoreOutcomeUnknown(f"{message}; the request may or may not have taken effect")


async def on_leadline_error(request: Request, error: LeadlineError) -> Response:
    """Return the response for an error of the tree."""
    del request
    return error_response(error)


async def on_validation_error(request: Request, error: RequestValidationError) -> Response:
    """Return 400 with each refused field, or 415 if the body has another type than JSON."""
    problems = [_problem(problem) for problem in error.errors()]
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and "json" not in media_type and any(p["field"] == "body" for p in problems):
        return error_response(
            UnsupportedFormat(f"the body must be application/json, not {media_type}")
        )
    first = problems[0]
    return error_response(InvalidRequest(f"{first['field']}: {first['message']}", fields=problems))


def _problem(problem: dict[str, Any]) -> dict[str, str]:
    location = problem["loc"]
    if problem["type"] == "json_invalid":
        # The rest of the location is a position in the text, not a field.
        return {"field": str(location[0]), "message": f"not JSON: {problem['ctx']['error']}"}
    return {"field": ".".join(map(str, location)), "message": problem["msg"]}


async def on_http_exception(request: Request, error: HTTPException) -> Response:
    """Return the response for an error of the framework, such as an unknown route or method."""
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # Of files: whatever else no route serves was refused before (`route_gate`).
        headers["Allow"] = "GET, HEAD, OPTIONS"
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
    return error_response(error_of_status(error, _message(request, error)), headers)


def error_of_status(error: HTTPException, message: str = "") -> LeadlineError:
    """Return the error of the tree for one of the framework; `message` replaces its own.

    It is the error itself if one of the tree had to pass through the framework.
    """
    if isinstance(error.__cause__, LeadlineError):
        return error.__cause__
    kind = _BY_STATUS.get(error.status_code, InvalidRequest)
    return kind(message or str(error.detail))


def no_route(path: str) -> NotFound:
    """Return the error for a path that the listener does not serve."""
    return NotFound(f"there is no {path}; /docs lists all routes")


def _message(request: Request, error: HTTPException) -> str:
    if error.status_code == 404:
        return no_route(request.url.path).message
    if error.status_code == 405:
        return f"{request.url.path} does not support {request.method}"
    return str(error.detail)


_TOPIC_ID: Final = "6f1c2f0e8d0b4b6a9c55b3a0f3a1d7e2"
_DETAILS: dict[type[LeadlineError], dict[str, Any]] = {
    InvalidRequest: {"fields": [{"field": "body.partitions", "message": "must be at least 1"}]},
    NotLeader: {"leader": LeaderHint(2, "http://127.0.0.1:9092", 5, _TOPIC_ID)},
    FencedLeaderEpoch: {"leader": LeaderHint(2, "http://127.0.0.1:9092", 5, _TOPIC_ID)},
    QuotaExceeded: {"retry_after_s": 2},
}
"""Further members of the examples of some errors."""


def invalid_field(field: str, message: str) -> InvalidRequest:
    """Return the error for one field: `body.`, `query.` or `path.`, and its path."""
    return InvalidRequest(f"{field}: {message}", fields=[{"field": field, "message": message}])


def error_responses(*errors: type[LeadlineError]) -> Responses:
    """Return the `responses` of a route that may answer with these errors.

    Each error is an example, with its code and its meaning, under its HTTP status.
    """
    responses: Responses = {}
    for error in errors:
        status = error("").status
        merge_error_responses(responses, {status: _documented(error, status)})
    return responses


def merge_error_responses(known: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Add documented errors to the responses of a route, in place.

    Errors of one status become examples of one response.
    """
    for status, response in more.items():
        if status not in known:
            known[status] = response
            continue
        examples = known[status]["content"]["application/json"]["examples"]
        examples |= response["content"]["application/json"]["examples"]
        known[status]["description"] = ", ".join(examples)


def _documented(error: type[LeadlineError], status: int) -> dict[str, Any]:
    meaning = (error.__doc__ or "").strip().partition("\n")[0].replace("`", "")
    example = {"summary": meaning, "value": error(meaning, **_DETAILS.get(error, {})).body()}
    response: dict[str, Any] = {
        "description": error.__name__,
        "content": {
            "application/json": {"schema": ERROR_SCHEMA, "examples": {error.__name__: example}}
        },
    }
    if status in {429, 503}:
        response["headers"] = {
            "Retry-After": {
                "description": "Seconds to wait before the same request may succeed",
                "schema": {"type": "integer"},
            }
        }
    return response


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    LeadlineError: on_leadline_error,
    RequestValidationError: on_validation_error,
    HTTPException: on_http_exception,
}
"""The handler of each kind of exception; the request middleware handles all others."""
