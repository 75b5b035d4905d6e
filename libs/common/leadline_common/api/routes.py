"""What all modules of administration routes share.

Each module holds the bodies of one topic and a Protocol of what a controller answers, whose
methods declare their routes. A route that differs from its method in more than its path is
written out in `add_routes(router)`. `administration.py` combines the modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel
from starlette.responses import Response

from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    NoController,
    StoreOutcomeUnknown,
)
from leadline_common.http.errors import Responses, error_responses, is_read_only

TopicName = Annotated[str, Path(description="The topic's name", examples=["orders"])]
BrokerId = Annotated[int, Path(ge=0, description="The broker's id", examples=[1])]
Method = TypeVar("Method", bound=Callable[..., Any])
_ROUTE = "__leadline_route__"
CONTINUES = "Accepted, and durable: it continues even if this controller fails"


def get_administration(request: Request) -> Any:
    """Return the application's administration: a dependency, typed by each module's Protocol."""
    return request.app.state.administration


def success_response(
    status: int, model: type[BaseModel], description: str, example: BaseModel
) -> Responses:
    """Document another success status of a route, besides its usual one."""
    content = {"application/json": {"example": example.model_dump()}}
    return {status: {"model": model, "description": description, "content": content}}


def read_errors(*errors: type[LeadlineError]) -> Responses:
    """Document the errors of a route that reads: `errors`, and that no controller is active."""
    return error_responses(NoController, *errors)


def write_errors(*errors: type[LeadlineError]) -> Responses:
    """Document the errors of a route that writes: those of a read, and unknown outcomes."""
    return read_errors(*errors, StoreOutcomeUnknown, ConnectionLost)


def route(
    operation: str,
    summary: str,
    *errors: type[LeadlineError],
    dry_run: BaseModel | None = None,
    **options: Any,
) -> Callable[[Method], Method]:
    """Declare that a method of a Protocol serves an operation, such as `GET /topics`.

    The parameters, the answer and the docstring of the method are those of the route; its name
    is the operation id, unless the `options` of FastAPI say otherwise. With `dry_run`, an example
    of the answer to a dry run, such answers have the status 200.
    """
    verb, path = operation.split()

    def declare(method: Method) -> Method:
        is_read = verb == "GET" or is_read_only(method)
        responses = read_errors(*errors) if is_read else write_errors(*errors)
        if dry_run is not None:
            example = success_response(200, type(dry_run), "The result of a dry run", dry_run)
            responses = example | responses
        declared = options | {"methods": [verb], "summary": summary, "responses": responses}
        setattr(method, _ROUTE, (path, declared))
        return method

    return declare


def add_declared_routes(router: APIRouter, protocol: type, tag: str) -> None:
    """Add the routes that the methods of a Protocol declare, in the order of the methods."""
    for method in vars(protocol).values():
        if declared := getattr(method, _ROUTE, None):
            path, options = declared
            router.add_api_route(path, _endpoint(method), tags=[tag], **options)


def _endpoint(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return an endpoint that calls this method of the application's administration."""
    signature = inspect.signature(method, eval_str=True)
    _, *parameters = signature.parameters.values()

    async def endpoint(controller: Any, response: Response, **arguments: Any) -> Any:
        serve = getattr(controller, method.__name__)
        answer = serve(*(arguments[parameter.name] for parameter in parameters))
        if inspect.isawaitable(answer):
            answer = await answer
        if getattr(answer, "dry_run", False):
            response.status_code = 200
        return answer

    update_wrapper(endpoint, method)
    injected = [
        _keyword("controller", Annotated[Any, Depends(get_administration)]),
        _keyword("response", Response),
    ]
    vars(endpoint)["__signature__"] = signature.replace(parameters=[*parameters, *injected])
    return endpoint


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
