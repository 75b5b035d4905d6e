"""The broker's HTTP application: records, offsets, cluster, administration, internal routes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from leadline_broker.api import cluster, fetch, internal, offsets, produce, staging
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.serving.serving import Serving
from leadline_broker.runtime.staging.staging import Staging
from leadline_client.errors import NoController
from leadline_common.api import administration
from leadline_common.clock import Clock, SystemClock
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.forward import Forwarder
from leadline_common.http.health import Problem
from leadline_common.metrics import Metrics

VERSION = "0.1.0"
_FORWARD_TIMEOUT_S: Final = 90.0
DESCRIPTION = """
A broker stores replicas of partitions, leads some of them, and serves producers and consumers.

Send produce and fetch requests to the leader of a partition; any other broker returns **421** and
names the leader. `GET /v1/metadata` returns all leaders. Administration requests (brokers, topics,
elections, what-if) are forwarded to the active controller.

All errors have the same body; see `ErrorBody`. `outcome` tells whether anything was changed.
"""
TAGS = (
    {"name": "records", "description": "Append and read records, and look up offsets."},
    *administration.TAGS,
    {"name": "internal", "description": "Requests between services; not for clients."},
)


def build_app(
    broker: Broker,
    *,
    request_max_bytes: int,
    metrics: Metrics | None = None,
    clock: Clock | None = None,
) -> ServiceApp:
    """Return the application that serves `broker`; building it does no IO."""
    app = create_app(
        title="Leadline broker",
        version=VERSION,
        description=DESCRIPTION,
        tags=TAGS,
        metrics=metrics,
        checks=[lambda: [Problem(reason) for reason in broker.readiness()]],
        max_body_bytes=request_max_bytes,
    )
    _add_records(app, broker, clock or SystemClock(), request_max_bytes)
    load_endpoint = cluster.LoadEndpoint(lambda: broker.engine.load)
    app.add_asgi_route(cluster.LOAD_OPERATION, load_endpoint)
    app.include_router(cluster.cluster_routes(broker))
    app.include_router(forwarded_routes(broker.metadata, app.forwarder))
    internal.add_commands(app, lambda: broker.engine.commands)
    internal.add_replica_fetch(app, lambda: broker.engine.sessions)
    internal.add_staged_copies(app, lambda: broker.engine.copy_store, request_max_bytes)
    return app


def _add_records(app: ServiceApp, broker: Broker, clock: Clock, max_body_bytes: int) -> None:
    def serving() -> Serving:
        return broker.engine.serving

    def staged() -> Staging:
        return broker.engine.staging

    app.add_asgi_route(produce.OPERATION, produce.ProduceEndpoint(serving, clock, max_body_bytes))
    app.add_asgi_route(fetch.OPERATION, fetch.FetchEndpoint(serving))
    app.include_router(offsets.offsets_routes(serving))
    offsets.add_bulk_offsets(app, lambda: broker.engine.offset_finder)
    app.add_asgi_route(staging.STAGE, staging.StageEndpoint(staged, clock, max_body_bytes))
    app.add_asgi_route(staging.DROP, staging.DropEndpoint(staged))
    staging.add_publish(app, lambda: broker.engine.publishing)


def forwarded_routes(metadata: ClusterMetadataCache, forwarder: Forwarder) -> APIRouter:
    """Return the administration routes, which every broker forwards to the active controller."""

    async def forward(request: Request) -> Response:
        controller = metadata.controller
        if controller is None:
            raise NoController("this broker does not know an active controller yet")
        return await forwarder.forward(request, controller.url, timeout_s=_FORWARD_TIMEOUT_S)

    class ForwardedRoute(APIRoute):
        """Has the documentation of the controller's route; the controller handles the request."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            return forward

    return administration.administration_routes(ForwardedRoute)
