"""What every area of the administration declares its routes with.

An area is one module: its bodies, a Protocol of what a controller answers, and
`add_routes(router)`. `administration.py` puts the areas together.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request
from pydantic import BaseModel

TopicName = Annotated[str, Path(description="The topic's name", examples=["orders"])]
BrokerId = Annotated[int, Path(ge=0, description="The broker's id", examples=[1])]


def answering_administration(request: Request) -> Any:
    """Return what answers, as a dependency: an area annotates it with its own Protocol."""
    return request.app.state.administration


def also(
    status: int, model: type[BaseModel], description: str, example: BaseModel
) -> dict[int | str, dict[str, Any]]:
    """Document a second kind of success."""
    content = {"application/json": {"example": example.model_dump()}}
    return {status: {"model": model, "description": description, "content": content}}
