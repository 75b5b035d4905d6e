"""The broker's HTTP application: records, offsets, the cluster, and the internal routes."""

from __future__ import annotations

from collections.abc import Sequence

from leadline_broker.api import fetch, load, produce
from leadline_broker.api.cluster import cluster_routes
from leadline_broker.api.forwarded import forwarded_routes
from leadline_broker.api.internal import add_internal_routes
from leadline_broker.api.offsets import add_bulk_offsets, offsets_routes
from leadline_broker.api.staged_copies import add_staged_copies
from leadline_broker.api.staging import add_staging
from leadline_broker.runtime.broker import Broker
from leadline_common.api import administration
from leadline_common.clock import Clock, SystemClock
from leadline_common.http.app import Lifespan, ServiceApp, create_app
from leadline_common.http.health import Check, Problem
from leadline_common.metrics import Metrics

VERSION = "0.1.0"
DESCRIPTION = """
A broker keeps replicas of partitions, leads some of them, and answers producers and consumers.

Ask the leader of a partition to append or read; any other broker refuses with **421** and says who
leads. `GET /v1/metadata` tells all leaders at once. What only a controller can answer (brokers,
topics, elections, what-if) is passed on to the active one.

Errors share one body; see `ErrorBody`. `outcome` says whether anything was changed.
"""
TAGS = (
    {"name": "records", "description": "Append and read records, and find offsets."},
    *administration.TAGS,
    {"name": "internal", "description": "Spoken between services; not for clients."},
)


def build_app(
    broker: Broker,
    *,
    request_max_bytes: int,
    metrics: Metrics | None = None,
    clock: Clock | None = None,
    lifespan: Lifespan | None = None,
    checks: Sequence[Check] = (),
) -> ServiceApp:
    """Return the application that serves `broker`; building it does no IO."""
    app = create_app(
        title="Leadline broker",
        version=VERSION,
        description=DESCRIPTION,
        tags=TAGS,
        metrics=metrics,
        checks=[*checks, lambda: [Problem(reason) for reason in broker.readiness()]],
        max_body_bytes=request_max_bytes,
        lifespan=lifespan,
    )
    clock = clock or SystemClock()
    app.add_asgi_route(produce.OPERATION, produce.ProduceEndpoint(broker, clock, request_max_bytes))
    app.add_asgi_route(fetch.OPERATION, fetch.FetchEndpoint(broker))
    app.add_asgi_route(load.OPERATION, load.LoadEndpoint(broker))
    app.include_router(offsets_routes(broker))
    app.include_router(cluster_routes(broker))
    app.include_router(forwarded_routes(broker, app.forwarder))
    add_bulk_offsets(app, broker)
    add_staging(app, broker, clock, request_max_bytes)
    add_internal_routes(app, broker)
    add_staged_copies(app, broker, request_max_bytes)
    return app
