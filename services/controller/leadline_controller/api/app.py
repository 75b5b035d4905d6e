"""The controller's HTTP application."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from starlette.middleware import Middleware

from leadline_client.errors import (
    BrokerFenced,
    NoController,
    StaleIncarnation,
    StoreOutcomeUnknown,
)
from leadline_common.access.caller import visible
from leadline_common.api.administration import (
    CLUSTER_TAG,
    TAGS,
    Administration,
    administration_routes,
)
from leadline_common.api.computations import provide_computer
from leadline_common.api.metadata import MetadataQuery, metadata_document, metadata_routes
from leadline_common.computing import Computer
from leadline_common.export_tables import AUDIT_TABLE
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.bulk import bulk_route
from leadline_common.http.caching import Document
from leadline_common.http.caller_routes import ME_PATH
from leadline_common.http.console import add_console
from leadline_common.http.docs import Service, link_services
from leadline_common.http.forward import LocalPaths, StandbyGate
from leadline_common.http.origins import AllowedNames
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.identity import ServiceIdentity
from leadline_common.metrics import Metrics
from leadline_common.problems import Problem
from leadline_common.quotas.gate import QuotaGate
from leadline_common.rpc import (
    CONTROLLED_SHUTDOWN_PATH,
    HEARTBEAT_PATH,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from leadline_common.versions import current_release
from leadline_controller.api.administration import ControllerAdministration
from leadline_controller.api.guarded import GuardedRoute
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.service import ControllerService

_DESCRIPTION = """\
Leadline's controller manages topics, leader election, reassignment and self-healing of replicas,
configs, and the audit history. One of the running controllers is active. The others forward
requests to it, so that clients can call any of them.

All errors have the body `ErrorBody`; its `outcome` says whether anything was changed.
"""
_LOCAL = LocalPaths(
    exact=("/v1/controller", ME_PATH, HEARTBEAT_PATH, CONTROLLED_SHUTDOWN_PATH),
    prefixes=("/v1/what-if/", "/v1/audit", AUDIT_TABLE),
    suffixes=("/history",),
)
_ADMINISTRATION: Final = administration_routes(GuardedRoute)
"""Made on import, so that a fork server makes them once for all processes."""
_FORWARD_TIMEOUT_S = 75.0
"""Longer than the longest long poll."""


def build_app(
    controller: ControllerService,
    metrics: Metrics,
    max_body_bytes: int,
    names: AllowedNames | None = None,
    connections: PeerConnections | None = None,
    quotas: QuotaGate | None = None,
) -> ServiceApp:
    """Return the application of one controller; this does no IO."""

    def check() -> Iterator[Problem]:
        for reason, serving in controller.problems():
            yield Problem(reason, serving=serving)

    async def read(query: MetadataQuery) -> Document:
        return read_metadata(await controller.metadata(query.after, query.wait_ms), query)

    app = create_app(
        title="Leadline controller",
        version=current_release(),
        description=_DESCRIPTION,
        tags=TAGS,
        metrics=metrics,
        checks=[check],
        max_body_bytes=max_body_bytes,
        cluster_id=controller.cluster_id,
        names=names,
        connections=connections,
        quotas=quotas,
    )
    computer = Computer()
    provide_computer(app, computer)
    administration: Administration = ControllerAdministration(controller, computer)
    app.state.administration = administration
    app.state.controller = controller
    app.add_routes_of(_ADMINISTRATION)
    app.add_routes_of(metadata_routes(CLUSTER_TAG, read, NoController))
    _add_internal_routes(app, controller)
    add_console(app, "controller")
    link_services(app, app.page_links, partial(_find_service, controller))
    # Innermost, so that forwarded requests get cause ids and are counted, too.
    app.user_middleware.append(
        Middleware(
            StandbyGate,
            service=controller,
            forwarder=app.forwarder,
            local=_LOCAL,
            timeout_s=_FORWARD_TIMEOUT_S,
        )
    )
    app.route_index()  # a route without a stated right stops the service here
    return app


def read_metadata(view: MetadataView, query: MetadataQuery) -> Document:
    """Return what a query asks for: the changes since the caller's state, or everything."""
    changes = None if query.base is None else view.changes(query.base, query.shown)
    if changes is not None:
        return metadata_document(view.tag, changes, changes=True)
    shown = visible("topic", query.topics, view.topic_names)
    return metadata_document(view.tag, view.document(shown))


async def _find_service(controller: ControllerService, service: Service) -> str | None:
    """Return the URL of a service's documentation; brokers know where the coordinator is."""
    if service == "controller":
        return "/docs"
    with suppress(NoController):
        if not controller.is_active:
            return f"{controller.active_address().url}/docs/of/{service}"
        brokers = controller.image().brokers
        return f"{brokers[min(brokers)].url}/docs/of/{service}" if brokers else None
    return None


def _add_internal_routes(app: ServiceApp, controller: ControllerService) -> None:
    """Add the routes that brokers call."""

    async def heartbeat(beat: HeartbeatRequest) -> HeartbeatResponse:
        return controller.heartbeat(beat)

    bulk_route(
        app,
        HEARTBEAT_PATH,
        heartbeat,
        HeartbeatRequest,
        HeartbeatResponse,
        name="heartbeat",
        summary="Report what a broker has applied",
        description=(
            "The controller compares the report with what the broker should have applied, and "
            "sends again what differs (rule R8). A standby refuses the request: the broker finds "
            "the active controller in ZooKeeper."
        ),
        errors=[NoController],
        speaker=lambda beat: ServiceIdentity("broker", beat.broker_id),
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
        summary="Announce that a broker is about to stop",
        description=(
            "Leadership moves from the broker to other members of the ISR, and the broker leaves "
            "each ISR that keeps min.insync.replicas members without it. Until its next "
            "incarnation it gets no new role. `remaining` lists the partitions that it still "
            "leads because no other replica can. The request is idempotent, and must be repeated "
            "after a change of the active controller."
        ),
        errors=[NoController, StaleIncarnation, BrokerFenced, StoreOutcomeUnknown],
        speaker=lambda stopping: ServiceIdentity("broker", stopping.broker_id),
        request_example=ControlledShutdownRequest(1, 4, "broker-1-stops"),
        response_example=ControlledShutdownResponse(3, [("orders", 0)]),
    )
