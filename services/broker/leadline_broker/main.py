"""Assembling a broker process, and running it."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from random import Random
from typing import Final

import structlog

from leadline_broker.adapters.disk import open_logs
from leadline_broker.adapters.peers import HttpPeers
from leadline_broker.adapters.zookeeper import ZkBrokerStore
from leadline_broker.api.app import build_app
from leadline_broker.api.v3.layer import response_to
from leadline_broker.domain.state import Addresses
from leadline_broker.runtime.broker import Broker
from leadline_common.clock import Clock, SystemClock
from leadline_common.freed_memory import return_freed_memory
from leadline_common.http.app import ServiceApp
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.internal_listener import InternalListener, bind_internal
from leadline_common.http.listeners import Listener, bind_public
from leadline_common.http.origins import AllowedNames
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.public_tls import PublicTrust
from leadline_common.http.server import run as run_on_loop
from leadline_common.http.server import serve
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.http.tls_files import TlsFiles
from leadline_common.identity import ServiceIdentity
from leadline_common.logs import configure_logging
from leadline_common.metrics import Metrics
from leadline_common.open_files import raise_open_files
from leadline_common.private_files import keep_files_private
from leadline_common.service_process import exit_at_once, serve_beside
from leadline_common.settings import BrokerSettings
from leadline_common.tracing.exporting import traced
from leadline_common.user_directory import authentication_in
from leadline_common.zk.connection_record import ConnectionRecord
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.login import login_of
from leadline_common.zk.ports import OpenTransport
from leadline_common.zk.session_file import stored_transport
from leadline_common.zk.transport import KazooTransport

logger = structlog.get_logger(__name__)

_COLLECT_AFTER: Final = (5_000, 3, 150)
"""The thresholds of the garbage collector.

A pass over 5,000 new objects takes 1.5 ms, one over 15,000 that have survived it 5 ms. One over all
leaves out the replicas (`ReplicaManager.long_lived`).
"""


def build_broker(
    settings: BrokerSettings,
    metrics: Metrics,
    clock: Clock,
    connections: PeerConnections | None = None,
    credentials: ZkCredentials | None = None,
    open_transport: OpenTransport = KazooTransport,
    record: ConnectionRecord | None = None,
) -> Broker:
    """Return a broker that is not started; nothing is opened or contacted.

    `connections` reach other services, `credentials` have its ZooKeeper user, and
    `open_transport` makes the connections of its sessions, which write the `record`.
    """
    return Broker(
        settings,
        store=ZkBrokerStore(
            settings.broker_id,
            settings.zookeeper_connect,
            settings.zookeeper_session_timeout_ms,
            clock,
            credentials,
            open_transport,
        ),
        peers=HttpPeers(ServiceCalls(connections or PeerConnections())),
        open_logs=partial(open_logs, settings),
        clock=clock,
        metrics=metrics,
        random=Random(),
        record=record,
    )


def openapi_app() -> ServiceApp:
    """Return the application for its OpenAPI document, without any IO."""
    settings = BrokerSettings(broker_id=0, log_dir="")
    metrics = Metrics()
    broker = build_broker(settings, metrics, SystemClock())
    return build_app(broker, request_max_bytes=settings.request_max_bytes, metrics=metrics)


def run(settings: BrokerSettings) -> None:
    """Run a broker until SIGTERM or SIGINT.

    Raises:
        SystemExit: with 1 if the broker failed.

    """
    keep_files_private()
    raise_open_files()
    return_freed_memory()
    configure_logging(
        "broker", settings.broker_id, level=settings.log_level, form=settings.log_format
    )
    with traced(settings, "broker", settings.broker_id):
        listener, trust = bind_public(settings), PublicTrust.of(settings)
        internal = bind_internal(settings, ServiceIdentity("broker", settings.broker_id))
        gc.set_threshold(*_COLLECT_AFTER)
        run_on_loop(_run(settings, listener, internal, trust))


async def _run(
    settings: BrokerSettings,
    listener: Listener,
    internal: InternalListener,
    trust: PublicTrust | None,
) -> None:
    """Serve, join the cluster, and shut down cleanly.

    The broker listens before it registers, because the controller sends its grant at once. On
    shutdown it serves until its leaders have moved to other brokers.
    """
    metrics, clock = Metrics(), SystemClock()
    connections = PeerConnections(internal.tls, trust, settings.authentication == "required")
    login = login_of(settings)
    record = ConnectionRecord()
    transport = await stored_transport(settings, record)
    broker = build_broker(settings, metrics, clock, connections, login, transport, record)
    app = build_app(
        broker,
        request_max_bytes=settings.request_max_bytes,
        metrics=metrics,
        clock=clock,
        names=AllowedNames.of(settings),
        connections=connections,
    )
    files = TlsFiles(listener, internal, trust)
    files.report_to(app)

    async def serve_clients() -> None:
        async with authentication_in(app, settings, login):
            await serve(
                app,
                listener,
                hand_over=broker.controlled_shutdown,
                stopping=broker.stop_serving,
                internal=internal,
                bounds=ConnectionBounds(settings, metrics, response_to),
                files=files,
            )

    addresses = Addresses(
        settings.advertised_url or listener.url, settings.internal_advertised_url or internal.url
    )
    joining = asyncio.create_task(_join(broker, addresses))
    try:
        await serve_beside(joining, serve_clients(), "broker")
    finally:
        if not await broker.close():
            exit_at_once(1)


async def _join(broker: Broker, addresses: Addresses) -> None:
    """Start the broker, then wait until it fails."""
    await broker.start(addresses)
    gc.collect()
    gc.freeze()
    await broker.failed()
