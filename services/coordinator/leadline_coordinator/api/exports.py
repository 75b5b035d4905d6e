"""The table `groups`, for programs; the other tables are the controller's."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from leadline_client.errors import CoordinatorNotAvailable
from leadline_common.api.exports import TAG
from leadline_common.export_tables import encode_rows
from leadline_common.http.errors import error_responses
from leadline_common.http.ndjson import ndjson_documentation, ndjson_response
from leadline_coordinator.api.groups import group_view
from leadline_coordinator.runtime.service import CoordinatorService

EPOCH_HEADER: Final = "Leadline-Coordinator-Epoch"
"""Header of the table: the epoch of the coordinator that answers."""

_LINE: Final = (
    '{"group":"billing","state":"stable","protocol":"cooperative","assignor":"sticky",'
    '"generation":7,"coordinator_epoch":3,"members":[…], …}\n'
)
_HEADERS: Final[dict[str, Any]] = {
    EPOCH_HEADER: {
        "description": "The epoch of the coordinator that answers",
        "schema": {"type": "integer"},
    }
}


def export_routes(coordinator: CoordinatorService) -> APIRouter:
    """Return the route of the table."""
    router = APIRouter(prefix="/v1", tags=[TAG])

    @router.get(
        "/export/groups",
        summary="All groups, as a table",
        response_class=StreamingResponse,
        responses=ndjson_documentation(_LINE, "One group on each line, by name", _HEADERS)
        | error_responses(CoordinatorNotAvailable),
    )
    async def export_groups(request: Request) -> Response:
        """Send all groups of one moment, each as `GET /v1/groups/{group}` shows it.

        Which state of a group it is is told by `coordinator_epoch` and `generation`: groups
        are no part of the cluster's metadata, and have no metadata version.
        """
        epoch = coordinator.epoch
        rows = [group_view(desk, epoch).model_dump() for desk in coordinator.desks()]
        return ndjson_response(request, encode_rows(rows), {EPOCH_HEADER: str(epoch)})

    return router
