"""What all modules of administration routes share.

Each module holds the bodies of one topic and a Protocol of what a controller answers, whose
methods declare their routes. A route that differs from its method in more than its path is
written out in `add_routes(router)`. `administration.py` combines the modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Depends, Path, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    NoController,
    StoreOutcomeUnknown,
)
from leadline_common.api.models import changed_example
from leadline_common.http.errors import Responses, error_responses, is_read_only
from leadline_common.http.long_bodies import encode_long
from leadline_common.http.router import ServiceRouter

TopicName = Annotated[str, Path(description="The topic's name", examples=["orders"])]
BrokerId = Annotated[int, Path(ge=0, description="The broker's id", examples=[1])]
Limit = Annotated[int, Query(ge=1, le=10_000, description="How many of the newest")]
Method = TypeVar("Method", bound=Callable[..., Any])
_ROUTE = "__leadline_route__"
CONTINUES = "Accepted, and durable: it continues even if this controller fails"


async def get_administration(request: Request) -> Any:
    """Return the application's administration: a dependency, typed by each module's Protocol.

    A coroutine, because the framework runs plain functions in threads, which costs every request
    more than its checks.
    """
    return request.app.state.administration


def read_errors(
    *errors: type[LeadlineError], unavailable: type[LeadlineError] = NoController
) -> Responses:
    """Document the errors of a route that reads: `errors`, and that no process is active."""
    return error_responses(unavailable, *errors)


def write_errors(
    *errors: type[LeadlineError], unavailable: type[LeadlineError] = NoController
) -> Responses:
    """Document the errors of a route that writes: those of a read, and unknown outcomes."""
    return read_errors(*errors, StoreOutcomeUnknown, ConnectionLost, unavailable=unavailable)


class OtherSuccess(NamedTuple):
    """Another success status of a route, with an example, and the answers that have it."""

    status: int
    description: str
    example: BaseModel
    applies: Callable[[Any], bool]

    def documented(self) -> Responses:
        """Return the `responses` of the status."""
        content = {"application/json": {"example": self.example.model_dump()}}
        model = type(self.example)
        return {self.status: {"model": model, "description": self.description, "content": content}}


def dry_run(model: type[BaseModel], **changes: Any) -> OtherSuccess:
    """Return the success status of a dry run; `changes` are what differs in its example."""
    example = changed_example(model, dry_run=True, **changes)
    return OtherSuccess(200, "The result of a dry run", example, lambda answer: answer.dry_run)


def route(
    operation: str,
    summary: str,
    *errors: type[LeadlineError],
    defaults: Mapping[str, Any] | None = None,
    other: OtherSuccess | None = None,
    unavailable: type[LeadlineError] = NoController,
    etag_of: Callable[[Any], str] | None = None,
    **options: Any,
) -> Callable[[Method], Method]:
    """Declare that a method of a Protocol serves an operation, such as `GET /topics`.

    The parameters, the answer and the docstring of the method are those of the route; its name
    is the operation id, unless the `options` of FastAPI say otherwise. `defaults` are those of
    query parameters. `unavailable` is the error while no process of the service is active.
    `etag_of` returns the ETag of an answer, without its quotes.
    """
    verb, path = operation.split()

    def declare(method: Method) -> Method:
        is_read = verb == "GET" or is_read_only(method)
        document = read_errors if is_read else write_errors
        responses = document(*errors, unavailable=unavailable)
        if other is not None:
            responses = other.documented() | responses
        success = options.get("status_code", 200)
        endpoint = _endpoint(method, defaults or {}, other, etag_of, success)
        declared = options | {"methods": [verb], "summary": summary, "responses": responses}
        setattr(method, _ROUTE, (path, endpoint, declared))
        return method

    return declare


def add_declared_routes(router: ServiceRouter, protocol: type, tag: str) -> None:
    """Add the routes that the methods of a Protocol declare, in the order of the methods."""
    for method in vars(protocol).values():
        if declared := getattr(method, _ROUTE, None):
            path, endpoint, options = declared
            router.add_api_route(path, endpoint, tags=[tag], **options)


def _endpoint(
    method: Callable[..., Any],
    defaults: Mapping[str, Any],
    other: OtherSuccess | None,
    etag_of: Callable[[Any], str] | None,
    success: int,
) -> Callable[..., Any]:
    """Return an endpoint that calls this method of the application's administration."""
    signature = inspect.signature(method, eval_str=True)
    _, *parameters = signature.parameters.values()

    async def endpoint(controller: Any, response: Response, **arguments: Any) -> Any:
        serve = getattr(controller, method.__name__)
        answer = serve(*(arguments[parameter.name] for parameter in parameters))
        if inspect.isawaitable(answer):
            answer = await answer
        if other is not None and other.applies(answer):
            response.status_code = other.status
        if etag_of is not None:
            response.headers["ETag"] = f'"{etag_of(answer)}"'
        encoded = await encode_long(answer) if isinstance(answer, BaseModel) else None
        if encoded is None:
            return answer
        status, headers = response.status_code or success, dict(response.headers)
        return Response(encoded, status, headers, media_type="application/json")

    update_wrapper(endpoint, method)
    vars(endpoint)["__signature__"] = signature.replace(
        parameters=[
            *(p.replace(default=defaults.get(p.name, p.default)) for p in parameters),
            _keyword("controller", Annotated[Any, Depends(get_administration)]),
            _keyword("response", Response),
        ]
    )
    return endpoint


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
