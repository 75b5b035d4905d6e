"""The coordinator's HTTP application."""

from __future__ import annotations

from starlette.middleware import Middleware

from leadline_client.errors import CoordinatorNotAvailable
from leadline_common.api.exports import TAGS as EXPORT_TAGS
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.forward import Forwarder, LocalPaths, StandbyGate
from leadline_common.http.health import Problem
from leadline_common.metrics import Metrics
from leadline_coordinator.api import coordinator as about
from leadline_coordinator.api.channel import channel_route
from leadline_coordinator.api.commit import add_commit_route
from leadline_coordinator.api.groups import TAG as GROUPS_TAG
from leadline_coordinator.api.groups import export_routes, group_routes
from leadline_coordinator.api.offsets import TAG as OFFSETS_TAG
from leadline_coordinator.api.offsets import offset_routes
from leadline_coordinator.api.what_if import TAGS as WHAT_IF_TAGS
from leadline_coordinator.api.what_if import what_if_routes
from leadline_coordinator.runtime.service import CoordinatorService

VERSION = "0.1.0"
_LOCAL = LocalPaths(exact=("/v1/coordinator",), prefixes=("/v1/what-if/",))
_FORWARD_TIMEOUT_S = 30.0
_DESCRIPTION = """\
Leadline's group coordinator: consumer groups, their assignments, and their committed offsets. Any
number of coordinators run, and one of them is active. The others forward requests to it, so you can
send a request to any of them.

A consumer asks any broker for the active coordinator (`POST /v1/consult`), and opens the WebSocket
`/v1/groups/{group}/channel` there. The AsyncAPI document `coordinator-channel.json` describes that
channel. This document describes the HTTP API.

All errors have the same body; see `ErrorBody`. `outcome` tells whether anything was changed.
"""
_TAGS = (
    {"name": about.TAG, "description": "The active coordinator."},
    {"name": GROUPS_TAG, "description": "Consumer groups and their members."},
    {"name": OFFSETS_TAG, "description": "Committed offsets and lag of groups."},
    *EXPORT_TAGS,
    *WHAT_IF_TAGS,
)


def build_app(coordinator: CoordinatorService, metrics: Metrics, max_body_bytes: int) -> ServiceApp:
    """Return the application of one coordinator; this does no IO."""
    app = create_app(
        title="Leadline coordinator",
        version=VERSION,
        description=_DESCRIPTION,
        tags=_TAGS,
        metrics=metrics,
        checks=[lambda: map(Problem, coordinator.problems())],
        max_body_bytes=max_body_bytes,
    )
    app.forwarder = Forwarder("the active coordinator", CoordinatorNotAvailable)
    app.include_router(about.coordinator_routes(coordinator))
    app.include_router(group_routes(coordinator))
    app.include_router(offset_routes(coordinator))
    app.include_router(export_routes(coordinator))
    add_commit_route(app, coordinator)
    app.include_router(what_if_routes())
    app.router.routes.append(channel_route(coordinator))
    # Innermost: within the layer that assigns cause ids and counts requests.
    app.user_middleware.append(
        Middleware(
            StandbyGate,
            service=coordinator,
            forwarder=app.forwarder,
            local=_LOCAL,
            timeout_s=_FORWARD_TIMEOUT_S,
        )
    )
    return app
