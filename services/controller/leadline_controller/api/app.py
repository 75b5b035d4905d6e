"""The controller's HTTP application."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.middleware import Middleware

from leadline_client.errors import (
    BrokerFenced,
    NoController,
    StaleIncarnation,
    StoreOutcomeUnknown,
)
from leadline_common.api.administration import (
    CLUSTER_TAG,
    TAGS,
    Administration,
    administration_routes,
)
from leadline_common.api.metadata import metadata_routes
from leadline_common.http import Document, Problem, ServiceApp, bulk_route, create_app
from leadline_common.metrics import Metrics
from leadline_common.rpc import (
    CONTROLLED_SHUTDOWN_PATH,
    HEARTBEAT_PATH,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from leadline_controller.api.administration import ControllerAdministration
from leadline_controller.api.gate import StandbyGate
from leadline_controller.api.guarded import guarded_route
from leadline_controller.runtime.service import ControllerService

VERSION = "0.1.0"
_DESCRIPTION = """\
Leadline's controller: topics, who leads what, moving and healing replicas, settings, and the
history of it all. Any number of controllers run, one of them is active; the others forward to it,
so any of them can be asked.

Errors share one body; see `ErrorBody`. `outcome` says whether anything was changed.
"""
_INTERNAL = {"name": "internal", "description": "What brokers say; not for people."}


def build_app(controller: ControllerService, metrics: Metrics, max_body_bytes: int) -> ServiceApp:
    """Return the application of one controller; building it does no IO."""

    def check() -> Iterator[Problem]:
        for reason, serving in controller.problems():
            yield Problem(reason, serving=serving)

    async def read_metadata(after: int | None, wait_ms: int, names: list[str] | None) -> Document:
        view = await controller.metadata(after, wait_ms)
        return Document(view.document(names), view.etag())

    app = create_app(
        title="Leadline controller",
        version=VERSION,
        description=_DESCRIPTION,
        tags=[*TAGS, _INTERNAL],
        metrics=metrics,
        checks=[check],
        max_body_bytes=max_body_bytes,
    )
    answering: Administration = ControllerAdministration(controller)
    app.state.administration = answering
    app.include_router(administration_routes(guarded_route(controller)))
    app.include_router(metadata_routes(CLUSTER_TAG, read_metadata, NoController))
    _add_internal_routes(app, controller)
    # Innermost: within the layer that gives cause ids and counts requests.
    app.user_middleware.append(
        Middleware(StandbyGate, controller=controller, forwarder=app.forwarder)
    )
    return app


def _add_internal_routes(app: ServiceApp, controller: ControllerService) -> None:
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
