"""The controller's HTTP application."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.middleware import Middleware

from leadline_client.errors import NoController
from leadline_common.api.administration import (
    CLUSTER_TAG,
    TAGS,
    Administration,
    administration_routes,
)
from leadline_common.api.metadata import metadata_routes
from leadline_common.export_tables import AUDIT_TABLE
from leadline_common.http import Document, Problem, ServiceApp, create_app
from leadline_common.http.standby import LocalPaths, StandbyGate
from leadline_common.metrics import Metrics
from leadline_common.rpc import CONTROLLED_SHUTDOWN_PATH, HEARTBEAT_PATH
from leadline_controller.api.administration import ControllerAdministration
from leadline_controller.api.guarded import guarded_route
from leadline_controller.api.internal import add_internal_routes
from leadline_controller.runtime.service import ControllerService

VERSION = "0.1.0"
_DESCRIPTION = """\
Leadline's controller: topics, who leads what, moving and healing replicas, settings, and the
history of it all. Any number of controllers run, one of them is active; the others forward to it,
so any of them can be asked.

Errors share one body; see `ErrorBody`. `outcome` says whether anything was changed.
"""
_LOCAL = LocalPaths(
    exact=("/v1/controller", HEARTBEAT_PATH, CONTROLLED_SHUTDOWN_PATH),
    prefixes=("/v1/what-if/", "/v1/audit", AUDIT_TABLE),
    suffixes=("/history",),
)
_FORWARD_TIMEOUT_S = 75.0
"""Longer than the longest long poll."""
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
    add_internal_routes(app, controller)
    # Innermost: within the layer that gives cause ids and counts requests.
    app.user_middleware.append(
        Middleware(
            StandbyGate,
            service=controller,
            forwarder=app.forwarder,
            local=_LOCAL,
            timeout_s=_FORWARD_TIMEOUT_S,
        )
    )
    return app
