"""The broker's HTTP application: records, offsets, cluster, internal routes, and forwarded ones.

Administration goes to the active controller, consumer groups to the active coordinator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware

from leadline_broker.api import (
    broker_reports,
    cluster,
    fetch,
    forwarding,
    group_polls,
    internal,
    offsets,
    produce,
    staging,
    topic_records,
)
from leadline_broker.api.v3 import app as v3
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.serving.routing import RoutedRecords
from leadline_broker.runtime.serving.serving import Serving
from leadline_broker.runtime.serving.topic_appends import TopicAppends
from leadline_broker.runtime.staging.staging import Staging
from leadline_client.errors import BrokerNotAvailable, CoordinatorNotAvailable
from leadline_common.api import administration, groups
from leadline_common.clock import Clock, SystemClock
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.console import add_console
from leadline_common.http.docs import Service, link_services
from leadline_common.http.forward import Forwarder, ForwardingLayer
from leadline_common.http.origins import AllowedNames
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.metrics import Metrics
from leadline_common.versions import current_release

DESCRIPTION = """
A broker stores replicas of partitions, leads some of them, and serves producers and consumers.

Send produce and fetch requests to the leader of a partition; any other broker returns **421** and
names the leader. `GET /v1/metadata` returns all leaders. A client that does not want to know them
appends with `POST /v1/topics/{topic}/records` and reads with `route=any`, at any broker.
Administration requests (brokers, topics, elections, what-if) are forwarded to the active
controller, requests about consumer groups to the active coordinator.

All errors have the same body; see `ErrorBody`. `outcome` tells whether anything was changed.
"""
TAGS = (
    {"name": "records", "description": "Append and read records, and look up offsets."},
    *administration.TAGS,
    *groups.TAGS,
    *v3.TAGS,
)


def build_app(
    broker: Broker,
    *,
    request_max_bytes: int,
    metrics: Metrics | None = None,
    clock: Clock | None = None,
    names: AllowedNames | None = None,
    connections: PeerConnections | None = None,
) -> ServiceApp:
    """Return the application that serves `broker`; building it does no IO."""
    to_coordinator = Forwarder(
        "the active coordinator", CoordinatorNotAvailable, connections or PeerConnections()
    )

    to_brokers = Forwarder(
        "the broker", BrokerNotAvailable, connections or PeerConnections(), names_caller=False
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await to_coordinator.close()
            await to_brokers.close()

    app = create_app(
        title="Leadline broker",
        version=current_release(),
        description=DESCRIPTION,
        tags=TAGS,
        metrics=metrics,
        checks=[broker.problems],
        max_body_bytes=request_max_bytes,
        cluster_id=lambda: broker.cluster_id,
        names=names,
        connections=connections,
        lifespan=lifespan,
    )
    app.quotas.settings = lambda: broker.settings
    clock = clock or SystemClock()
    _add_records(app, broker, clock, request_max_bytes)
    load_endpoint = cluster.LoadEndpoint(lambda: broker.engine.load)
    app.add_asgi_route(cluster.LOAD_OPERATION, load_endpoint)
    app.add_routes_of(cluster.cluster_routes(broker))
    app.add_routes_of(broker_reports.report_routes(broker, to_brokers))
    forwards = forwarding.add_administration(app, broker.metadata, app.forwarder)
    forwards |= forwarding.add_groups(app, broker.coordinator_finder, to_coordinator)
    app.user_middleware.append(Middleware(ForwardingLayer, forwards=forwards))
    _add_polls(app, broker)
    internal.add_commands(app, lambda: broker.engine.commands, broker.controller_check)
    internal.add_replica_fetch(app, lambda: broker.engine.sessions)
    internal.add_staged_copies(app, lambda: broker.engine.copy_store, request_max_bytes)
    internal.add_routed(app, lambda: broker.engine.routed_requests, request_max_bytes)
    v3.add_v3(app, broker, to_coordinator, to_brokers, clock, request_max_bytes)
    add_console(app, "broker")
    link_services(app, app.page_links, partial(_find_service, broker))
    app.route_index()  # a route without a stated right stops the service here
    return app


def _add_polls(app: ServiceApp, broker: Broker) -> None:
    def polls() -> group_polls.Polls:
        return group_polls.Polls(broker.engine.group_polls, broker.engine.serving.checks)

    app.add_asgi_route(group_polls.OPERATION, group_polls.PollEndpoint(polls, app.quotas))


async def _find_service(broker: Broker, service: Service) -> str | None:
    """Return the URL of a service's documentation."""
    if service == "broker":
        return "/docs"
    coordinator = broker.coordinator_finder.current
    found = broker.metadata.controller if service == "controller" else coordinator
    return f"{found.url}/docs" if found is not None and found.url else None


def _add_records(app: ServiceApp, broker: Broker, clock: Clock, max_body_bytes: int) -> None:
    def serving() -> Serving:
        return broker.engine.serving

    def staged() -> Staging:
        return broker.engine.staging

    def routed() -> RoutedRecords:
        return broker.engine.routed

    def appends() -> TopicAppends:
        return broker.engine.topic_appends

    bodies = produce.RecordBodies(clock, max_body_bytes, app.quotas)
    app.add_asgi_route(produce.OPERATION, produce.ProduceEndpoint(serving, bodies))
    to_topic = topic_records.TopicProduceEndpoint(appends, bodies, clock)
    app.add_asgi_route(topic_records.OPERATION, to_topic)
    app.add_asgi_route(fetch.OPERATION, fetch.FetchEndpoint(serving, routed, app.quotas))
    app.add_routes_of(offsets.offsets_routes(serving, routed))
    offsets.add_bulk_offsets(app, lambda: broker.engine.offset_finder)
    app.add_asgi_route(staging.STAGE, staging.StageEndpoint(staged, bodies))
    app.add_asgi_route(staging.DROP, staging.DropEndpoint(staged))
    staging.add_publish(app, lambda: broker.engine.publishing)
