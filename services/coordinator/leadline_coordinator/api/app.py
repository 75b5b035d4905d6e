"""The coordinator's HTTP application."""

from __future__ import annotations

from functools import partial
from itertools import starmap
from typing import Final

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from leadline_client.errors import CoordinatorNotAvailable
from leadline_common.api import groups
from leadline_common.api.computations import provide_computer
from leadline_common.api.exports import TAGS as EXPORT_TAGS
from leadline_common.computing import Computer
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.caller_routes import ME_PATH
from leadline_common.http.docs import DOCUMENTATION, Service, link_services
from leadline_common.http.forward import Forwarder, LocalPaths, StandbyGate
from leadline_common.http.origins import AllowedNames
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.metrics import Metrics
from leadline_common.problems import Problem
from leadline_common.versions import current_release
from leadline_coordinator.api import coordinator as about
from leadline_coordinator.api.channel import channel_route
from leadline_coordinator.api.channel_document import channel_document
from leadline_coordinator.api.commit import add_commit_route
from leadline_coordinator.api.groups import GroupEndpoints, export_routes
from leadline_coordinator.api.polls import add_sync_route
from leadline_coordinator.api.what_if import TAGS as WHAT_IF_TAGS
from leadline_coordinator.api.what_if import what_if_routes
from leadline_coordinator.runtime.service import CoordinatorService

CHANNEL_DOCUMENT_PATH = "/asyncapi.json"
_LOCAL = LocalPaths(exact=("/v1/coordinator", ME_PATH), prefixes=("/v1/what-if/",))
_GROUPS: Final = groups.group_routes()
"""Made on import, so that a fork server makes them once for all processes."""
_FORWARD_TIMEOUT_S = 30.0
_DESCRIPTION = """\
Leadline's group coordinator: consumer groups, their assignments, and their committed offsets. Any
number of coordinators run, and one of them is active. The others forward requests to it, so you can
send a request to any of them.

A consumer asks any broker for the active coordinator (`POST /v1/consult`), and opens the WebSocket
`/v1/groups/{group}/channel` there. The AsyncAPI document at [`/asyncapi.json`](/asyncapi.json)
describes that channel. This document describes the HTTP API.

All errors have the same body; see `ErrorBody`. `outcome` tells whether anything was changed.
"""
_TAGS = (
    {"name": about.TAG, "description": "The active coordinator."},
    *groups.TAGS,
    *EXPORT_TAGS,
    *WHAT_IF_TAGS,
)


def build_app(
    coordinator: CoordinatorService,
    metrics: Metrics,
    max_body_bytes: int,
    names: AllowedNames | None = None,
    connections: PeerConnections | None = None,
) -> ServiceApp:
    """Return the application of one coordinator; this does no IO."""
    app = create_app(
        title="Leadline coordinator",
        version=current_release(),
        description=_DESCRIPTION,
        tags=_TAGS,
        metrics=metrics,
        checks=[lambda: starmap(Problem, coordinator.problems())],
        max_body_bytes=max_body_bytes,
        cluster_id=coordinator.cluster_id,
        names=names,
    )
    app.quotas.settings = lambda: coordinator.settings
    app.forwarder = Forwarder(
        "the active coordinator", CoordinatorNotAvailable, connections or PeerConnections()
    )
    app.add_routes_of(about.coordinator_routes(coordinator))
    administration: groups.GroupAdministration = GroupEndpoints(coordinator)
    app.state.administration = administration
    app.add_routes_of(_GROUPS)
    app.add_routes_of(export_routes(coordinator))
    gate = partial(
        StandbyGate,
        service=coordinator,
        forwarder=app.forwarder,
        local=_LOCAL,
        timeout_s=_FORWARD_TIMEOUT_S,
    )
    # Plain endpoints are called before the layer that forwards all other requests.
    add_commit_route(app, coordinator, gate)
    add_sync_route(app, coordinator, gate)
    computer = Computer()
    provide_computer(app, computer)
    app.add_routes_of(what_if_routes(computer))
    app.router.routes.append(channel_route(coordinator))
    _add_documents(app, coordinator)
    # Innermost: within the layer that assigns cause ids and counts requests.
    app.user_middleware.append(Middleware(gate))
    app.route_index()  # a route without a stated right stops the service here
    return app


def _add_documents(app: ServiceApp, coordinator: CoordinatorService) -> None:
    """Serve the document of the channel, and link the pages of the cluster's services."""

    async def channel_document_response(request: Request) -> Response:
        del request
        return JSONResponse(channel_document(current_release()))

    async def find(service: Service) -> str | None:
        if service == "coordinator":
            return "/docs"
        url = await coordinator.broker_url()
        return f"{url}/docs/of/{service}" if url is not None else None

    app.add_route(
        CHANNEL_DOCUMENT_PATH,
        channel_document_response,
        include_in_schema=False,
        name=DOCUMENTATION,
    )
    app.page_links["AsyncAPI of the channel"] = CHANNEL_DOCUMENT_PATH
    link_services(app, app.page_links, find)
