"""Which coordinator this is, and which one is active."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from leadline_common.api.models import example
from leadline_coordinator.runtime.service import CoordinatorService

TAG = "coordinator"
_ACTIVE = {"id": 1, "url": "http://127.0.0.1:8071", "epoch": 3}


class CoordinatorBody(BaseModel):
    """The active coordinator; `epoch` rises by one at every take-over."""

    id: int
    url: str
    epoch: int


class ThisCoordinator(BaseModel):
    """The coordinator that answers, and the one that is active."""

    model_config = example(
        {"id": 1, "url": "http://127.0.0.1:8071", "active": True, "coordinator": _ACTIVE}
    )

    id: int
    url: str
    active: bool = Field(description="Whether this process is the active coordinator")
    coordinator: CoordinatorBody | None


def coordinator_routes(coordinator: CoordinatorService) -> APIRouter:
    """Return the route about this process."""
    router = APIRouter(prefix="/v1", tags=[TAG])

    @router.get("/coordinator", summary="Which coordinator is this, and which one is active?")
    async def read_coordinator() -> ThisCoordinator:
        """Answered by each coordinator itself, active or standby."""
        active = coordinator.active
        return ThisCoordinator(
            id=coordinator.id,
            url=coordinator.url,
            active=coordinator.is_active,
            coordinator=CoordinatorBody.model_validate(active, from_attributes=True)
            if active is not None
            else None,
        )

    return router
