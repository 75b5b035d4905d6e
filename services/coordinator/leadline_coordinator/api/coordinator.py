"""The route about this coordinator and the active one."""

from __future__ import annotations

from pydantic import BaseModel, Field

from leadline_common.api.models import example
from leadline_common.http.router import ServiceRouter
from leadline_coordinator.runtime.service import CoordinatorService

TAG = "coordinator"
_ACTIVE = {"id": 1, "url": "http://127.0.0.1:8071", "epoch": 3}


class CoordinatorBody(BaseModel):
    """The active coordinator; `epoch` rises by one with each election."""

    id: int
    url: str
    epoch: int


class ThisCoordinator(BaseModel):
    """The coordinator that answers, and the active one."""

    model_config = example(
        {"id": 1, "url": "http://127.0.0.1:8071", "active": True, "coordinator": _ACTIVE}
    )

    id: int
    url: str
    active: bool = Field(description="Whether this process is the active coordinator")
    coordinator: CoordinatorBody | None


def coordinator_routes(coordinator: CoordinatorService) -> ServiceRouter:
    """Return the route about this process."""
    router = ServiceRouter(prefix="/v1", tags=[TAG])

    @router.get("/coordinator", summary="Get the active coordinator")
    async def read_coordinator() -> ThisCoordinator:
        """Get this coordinator and the active one. A standby does not forward this request."""
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
