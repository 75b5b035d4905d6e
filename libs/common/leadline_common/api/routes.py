"""What all modules of administration routes share.

Each module holds the bodies of one topic, a Protocol of what a controller answers, and
`add_routes(router)`. `administration.py` combines them.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request
from pydantic import BaseModel

from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    NoController,
    StoreOutcomeUnknown,
)
from leadline_common.http.errors import Responses, error_responses

TopicName = Annotated[str, Path(description="The topic's name", examples=["orders"])]
BrokerId = Annotated[int, Path(ge=0, description="The broker's id", examples=[1])]


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
