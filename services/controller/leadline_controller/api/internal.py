"""What brokers say to the controller."""

from __future__ import annotations

from leadline_client.errors import (
    BrokerFenced,
    NoController,
    StaleIncarnation,
    StoreOutcomeUnknown,
)
from leadline_common.http import ServiceApp, bulk_route
from leadline_common.rpc import (
    CONTROLLED_SHUTDOWN_PATH,
    HEARTBEAT_PATH,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
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
    bulk_route(
        app,
        CONTROLLED_SHUTDOWN_PATH,
        controller.controlled_shutdown,
        ControlledShutdownRequest,
        ControlledShutdownResponse,
        name="controlled_shutdown",
        summary="Say that a broker is about to stop",
        description=(
            "Leadership moves from the broker to other members of the ISR, and the broker leaves "
            "each ISR that stays at min.insync.replicas without it. Until its next incarnation it "
            "is given no role. `remaining` are the partitions that it leads still, because nobody "
            "else can. Asking again is harmless; after a change of controller it is needed."
        ),
        errors=[NoController, StaleIncarnation, BrokerFenced, StoreOutcomeUnknown],
        request_example=ControlledShutdownRequest(1, 4, "broker-1-stops"),
        response_example=ControlledShutdownResponse(3, [("orders", 0)]),
    )
