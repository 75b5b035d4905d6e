"""The v3 API of a broker, put together."""

from __future__ import annotations

from functools import partial
from typing import Final

from leadline_broker.api.forwarding import (
    CONTROLLER_TIMEOUT_S,
    COORDINATOR_TIMEOUT_S,
    find_controller,
    find_coordinator,
)
from leadline_broker.api.next_controller import with_next_controller
from leadline_broker.api.v3 import (
    clusters,
    configs,
    groups,
    lags,
    partitions,
    reassignments,
    removal,
    replica_status,
    topics,
)
from leadline_broker.api.v3.layer import V3Layer
from leadline_broker.api.v3.records.endpoints import (
    BatchEndpoint,
    ProduceEndpoint,
    RecordIntake,
)
from leadline_broker.api.v3.records.operations import PRODUCE, PRODUCE_BATCH
from leadline_broker.api.v3.records.operations import TAG as RECORDS_TAG
from leadline_broker.api.v3.routes import V3Context
from leadline_broker.runtime.broker import Broker
from leadline_common.clock import Clock
from leadline_common.http.app import ServiceApp
from leadline_common.http.forward import Forwarder
from leadline_common.http.service_queries import ServiceQueries

TAGS: Final = (
    {"name": clusters.CLUSTERS_TAG, "description": "The cluster, as Confluent's v3 API shows it."},
    {"name": clusters.BROKERS_TAG, "description": "Brokers and their removal."},
    {"name": topics.TAG, "description": "Topics."},
    {"name": configs.TAG, "description": "Settings of topics, brokers and the cluster."},
    {"name": partitions.TAG, "description": "Partitions, their offsets and replicas."},
    {"name": reassignments.TAG, "description": "Reassignments in progress."},
    {"name": replica_status.TAG, "description": "How far replicas are."},
    {"name": RECORDS_TAG, "description": "Append records to topics."},
    {"name": groups.TAG, "description": "Consumer groups, their members and their lag."},
)

# Those with a literal `-` in their paths first: routes are tried in order.
_ROUTERS: Final = (
    clusters.clusters,
    clusters.cluster_router,
    configs.router,
    removal.router,
    clusters.brokers,
    reassignments.router,
    replica_status.router,
    topics.router,
    partitions.router,
    groups.router,
    lags.router,
    removal.unsupported,
)


def add_v3(
    app: ServiceApp,
    broker: Broker,
    to_coordinator: Forwarder,
    to_brokers: Forwarder,
    clock: Clock,
    max_body_bytes: int,
) -> None:
    """Serve the v3 API, at both of its prefixes; `to_brokers` asks in the name of this broker."""
    context = app.state.v3 = _context(app, broker, to_coordinator, to_brokers, clock)
    for router in _ROUTERS:
        app.add_routes_of(router)
    intake = RecordIntake(context, app.quotas, max_body_bytes)
    app.add_asgi_route(PRODUCE, ProduceEndpoint(intake))
    app.add_asgi_route(PRODUCE_BATCH, BatchEndpoint(intake))
    app.add_middleware(V3Layer)


def _context(
    app: ServiceApp, broker: Broker, to_coordinator: Forwarder, to_brokers: Forwarder, clock: Clock
) -> V3Context:
    return V3Context(
        state=broker.state,
        metadata=broker.metadata,
        cluster_id=lambda: broker.cluster_id,
        advertised_url=lambda: broker.settings.advertised_url,
        engine=lambda: broker.engine,
        controller=ServiceQueries(
            app.forwarder,
            lambda: find_controller(broker.metadata),
            CONTROLLER_TIMEOUT_S,
            partial(with_next_controller, broker.metadata),
        ),
        coordinator=ServiceQueries(
            to_coordinator,
            lambda: find_coordinator(broker.coordinator_finder),
            COORDINATOR_TIMEOUT_S,
        ),
        brokers=to_brokers,
        now_ms=clock.wall_ms,
    )
