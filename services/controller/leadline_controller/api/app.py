"""The controller's HTTP application."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.middleware import Middleware

from leadline_common.http import Problem, ServiceApp, create_app
from leadline_common.metrics import Metrics
from leadline_controller.api import cluster, topics, what_if
from leadline_controller.api.gate import StandbyGate
from leadline_controller.api.internal import add_internal_routes
from leadline_controller.runtime.service import ControllerService

VERSION = "0.1.0"
_DESCRIPTION = """\
Leadline's controller: who leads what, topics, elections. Any number of controllers run, one
of them is active; the others forward to it, so any of them can be asked.

Errors share one body; see `ErrorBody`. `outcome` says whether anything was changed.
"""
_TAGS = (
    {"name": cluster.TAG, "description": "Who rules, who is live, who leads what."},
    {"name": topics.TAG, "description": "Creating, reading and deleting topics."},
    {"name": topics.ELECTIONS_TAG, "description": "Electing leaders by hand."},
    {
        "name": what_if.TAG,
        "description": "The functions that the controller decides with, without any effect.",
    },
    {"name": "internal", "description": "What brokers say; not for people."},
)


def build_app(controller: ControllerService, metrics: Metrics, max_body_bytes: int) -> ServiceApp:
    """Return the application of one controller; building it does no IO."""

    def check() -> Iterator[Problem]:
        for reason, serving in controller.problems():
            yield Problem(reason, serving=serving)

    app = create_app(
        title="Leadline controller",
        version=VERSION,
        description=_DESCRIPTION,
        tags=_TAGS,
        metrics=metrics,
        checks=[check],
        max_body_bytes=max_body_bytes,
    )
    app.include_router(cluster.cluster_routes(controller))
    app.include_router(topics.topic_routes(controller))
    app.include_router(what_if.what_if_routes())
    add_internal_routes(app, controller)
    # Innermost: within the layer that gives cause ids and counts requests.
    app.user_middleware.append(
        Middleware(StandbyGate, controller=controller, forwarder=app.forwarder)
    )
    return app
