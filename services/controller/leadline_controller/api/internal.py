"""What brokers say to the controller."""

from __future__ import annotations

from leadline_client.errors import NoController
from leadline_common.http import ServiceApp, bulk_route
from leadline_common.rpc import HEARTBEAT_PATH, HeartbeatRequest, HeartbeatResponse
from leadline_controller.runtime.service import ControllerService


def add_internal_routes(app: ServiceApp, controller: ControllerService) -> None:
    """Add the routes for brokers."""

    async def heartbeat(beat: HeartbeatRequest) -> HeartbeatResponse:
        return controller.heartbeat(beat)

    bulk_route(
        app,
        HEARTBEAT_PATH,
        heartbeat,
        HeartbeatRequest,
        HeartbeatResponse,
        name="heartbeat",
        summary="Say what a broker has applied",
        description=(
            "The controller compares it with what the broker should have applied, and sends "
            "again what differs (rule R8). A standby refuses: the broker finds the active one "
            "in ZooKeeper."
        ),
        errors=[NoController],
        request_example=HeartbeatRequest(1, 4, 3, True, 1042, 240, 8301034833169298228),
        response_example=HeartbeatResponse(1, 3),
    )
