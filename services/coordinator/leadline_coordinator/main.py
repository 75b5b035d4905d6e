"""The coordinator service: wires settings, adapters, runtime and API, and runs them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, Final

from leadline_common.clock import SystemClock
from leadline_common.freed_memory import return_freed_memory
from leadline_common.http.app import ServiceApp
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.internal_listener import InternalListener, bind_internal
from leadline_common.http.listeners import bind_public
from leadline_common.http.origins import AllowedNames
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.public_tls import PublicTrust
from leadline_common.http.server import run as run_loop
from leadline_common.http.server import serve
from leadline_common.http.tls_files import TlsFiles
from leadline_common.identity import ServiceIdentity
from leadline_common.logs import configure_logging
from leadline_common.open_files import raise_open_files
from leadline_common.private_files import keep_files_private
from leadline_common.service_process import serve_beside
from leadline_common.settings import CoordinatorSettings
from leadline_common.tracing.exporting import traced
from leadline_common.user_directory import authentication_in
from leadline_common.versions import current_release
from leadline_common.zk.connection_record import ConnectionRecord
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.login import login_of
from leadline_common.zk.ports import OpenTransport
from leadline_common.zk.session_file import stored_transport
from leadline_common.zk.transport import KazooTransport
from leadline_coordinator.adapters.brokers import HttpBrokerClient
from leadline_coordinator.adapters.zk_store import ZkCoordinatorStore
from leadline_coordinator.api.app import build_app
from leadline_coordinator.api.channel_document import channel_document
from leadline_coordinator.runtime.context import CoordinatorMetrics
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.elector import CoordinatorDependencies, CoordinatorElector
from leadline_coordinator.runtime.ports import BrokerClient, CoordinatorStore
from leadline_coordinator.runtime.service import CoordinatorService

MAX_FRAME_BYTES: Final = 1024 * 1024


def run(settings: CoordinatorSettings) -> None:
    """Run a coordinator until SIGTERM or SIGINT; it then resigns and ends.

    Raises:
        SystemExit: with 1 if it cannot lead beside a service of another release.

    """
    keep_files_private()
    raise_open_files()
    return_freed_memory()
    configure_logging(
        "coordinator", settings.coordinator_id, level=settings.log_level, form=settings.log_format
    )
    with traced(settings, "coordinator", settings.coordinator_id):
        run_loop(_main(settings))


async def _main(settings: CoordinatorSettings) -> None:
    listener, trust = bind_public(settings), PublicTrust.of(settings)
    authenticated = settings.authentication == "required"
    internal = _bind_internal(settings) if authenticated else None
    tls = internal.tls if internal is not None else None
    connections = PeerConnections(tls, trust, authenticated)
    brokers, login = HttpBrokerClient(connections), login_of(settings)
    url = settings.advertised_url or listener.url
    record = ConnectionRecord()
    transport = await stored_transport(settings, record)
    elector, service = _build(settings, url, brokers, login, transport, record)
    if internal is not None:
        elector.internal_url = settings.internal_advertised_url or internal.url
    names = AllowedNames.of(settings)
    app = build_app(service, elector.metrics, settings.request_max_bytes, names, connections)
    files = TlsFiles(listener, internal, trust)
    files.report_to(app)
    bounds = ConnectionBounds(settings, elector.metrics)
    election = asyncio.create_task(elector.election.run(), name="coordinator-elector")

    def resign() -> None:
        """Let another coordinator be elected while this process finishes its requests."""
        election.cancel()

    async def serve_clients() -> None:
        async with authentication_in(app, settings, login, ("broker", "coordinator")):
            await serve(
                app,
                listener,
                stopping=resign,
                max_message_bytes=MAX_FRAME_BYTES,
                internal=internal,
                bounds=bounds,
                files=files,
            )

    try:
        await serve_beside(election, serve_clients(), "coordinator")
    finally:
        await brokers.close()


def _bind_internal(settings: CoordinatorSettings) -> InternalListener:
    return bind_internal(settings, ServiceIdentity("coordinator", settings.coordinator_id))


def _build(
    settings: CoordinatorSettings,
    url: str,
    brokers: BrokerClient,
    credentials: ZkCredentials | None = None,
    open_transport: OpenTransport = KazooTransport,
    record: ConnectionRecord | None = None,
) -> tuple[CoordinatorElector, CoordinatorService]:
    async def open_store() -> CoordinatorStore:
        store = ZkCoordinatorStore(credentials, open_transport)
        await store.start(settings.zookeeper_connect, settings.zookeeper_session_timeout_ms)
        return store

    dependencies = CoordinatorDependencies(
        open_store=open_store,
        brokers=brokers,
        clock=SystemClock(),
        new_id=lambda: uuid.uuid4().hex[:16],
        record=record or ConnectionRecord(),
    )
    elector = CoordinatorElector(
        settings, url, dependencies, CoordinatorMetrics(settings.metrics_groups_max)
    )
    _add_gauges(elector)
    return elector, CoordinatorService(elector)


def _add_gauges(elector: CoordinatorElector) -> None:
    def add(name: str, meaning: str, read: Callable[[Coordinator], float]) -> None:
        """Add a gauge of the active coordinator; it is 0 on a standby."""

        def reading() -> float:
            return read(elector.coordinator) if elector.coordinator else 0

        elector.metrics.gauge_from(f"coordinator_{name}", meaning, reading)

    add("active", "1 while this process is the active coordinator.", lambda _: 1)
    add("groups", "Consumer groups, with or without members.", lambda active: len(active.groups))
    add(
        "rebalancing_groups",
        "Consumer groups that are being rebalanced.",
        lambda active: len(active.groups_being_rebalanced),
    )
    elector.metrics.gauge_from(
        "coordinator_epoch",
        "The coordinator epoch as far as this process knows.",
        lambda: elector.election.leader.epoch if elector.election.leader else 0,
    )


def openapi_app() -> ServiceApp:
    """Return the application for its OpenAPI document; it does no IO."""
    settings = CoordinatorSettings(coordinator_id=1)
    elector, service = _build(settings, "http://127.0.0.1:8071", HttpBrokerClient())
    return build_app(service, elector.metrics, settings.request_max_bytes)


def asyncapi_document() -> dict[str, Any]:
    """Return the AsyncAPI document of the consumer's channel."""
    return channel_document(current_release())
