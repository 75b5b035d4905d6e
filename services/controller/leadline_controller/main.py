"""The controller service: wires settings, adapters, runtime and API, and runs them."""

from __future__ import annotations

import asyncio
import gc
import secrets
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from leadline_common.clock import SystemClock
from leadline_common.freed_memory import return_freed_memory
from leadline_common.http.app import ServiceApp
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.internal_listener import bind_internal
from leadline_common.http.listeners import bind_public
from leadline_common.http.origins import AllowedNames
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.public_tls import PublicTrust
from leadline_common.http.quotas import current_payer
from leadline_common.http.server import run as run_loop
from leadline_common.http.server import serve
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.http.tls_files import TlsFiles
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.logs import configure_logging
from leadline_common.metrics import Rows, ScrapedMetrics
from leadline_common.open_files import raise_open_files
from leadline_common.private_files import keep_files_private
from leadline_common.quotas.gate import QuotaGate
from leadline_common.quotas.limits import Quota
from leadline_common.service_process import exit_at_once, serve_beside
from leadline_common.settings import ControllerSettings
from leadline_common.tracing.exporting import traced
from leadline_common.user_directory import authentication_in
from leadline_common.zk.connection_record import ConnectionRecord
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.login import login_of
from leadline_common.zk.ports import OpenTransport
from leadline_common.zk.session_file import stored_transport
from leadline_common.zk.transport import KazooTransport
from leadline_controller.adapters.brokers import BrokerRpcClient
from leadline_controller.adapters.history.database import url_of
from leadline_controller.adapters.history.store import SqlHistory
from leadline_controller.adapters.peer_audit import HttpPeerAuditClient
from leadline_controller.adapters.zk_store import ControllerZkStore
from leadline_controller.api.app import build_app
from leadline_controller.domain.stats import Unhealthy, count_unhealthy
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.audit.replication import AuditReplicator
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.leadership import ControllerDependencies, ControllerLeadership
from leadline_controller.runtime.ports import AuditHistory, CommandGateway, ControllerStore
from leadline_controller.runtime.service import ControllerService

logger = structlog.get_logger(__name__)

_COLLECT_AFTER: Final = (5_000, 3, 1_500)
"""The thresholds of the garbage collector.

A pass over 5,000 new objects takes 1.5 ms, one over 15,000 that have survived it 5 ms. One over
all walks what has changed in the image since the election, and frees next to nothing.
"""


def run(settings: ControllerSettings) -> None:
    """Run a controller until SIGTERM or SIGINT; it resigns before it ends.

    Raises:
        SystemExit: with 1 if it cannot lead beside a service of another release.

    """
    keep_files_private()
    raise_open_files()
    return_freed_memory()
    configure_logging(
        "controller", settings.controller_id, level=settings.log_level, form=settings.log_format
    )
    gc.set_threshold(*_COLLECT_AFTER)
    with traced(settings, "controller", settings.controller_id):
        run_loop(_main(settings))


async def _main(settings: ControllerSettings) -> None:
    listener, trust = bind_public(settings), PublicTrust.of(settings)
    internal = bind_internal(settings, ServiceIdentity("controller", settings.controller_id))
    connections = PeerConnections(internal.tls, trust, settings.authentication == "required")
    gateway = BrokerRpcClient(ServiceCalls(connections))
    history = SqlHistory(_history_url(settings))
    url, login = settings.advertised_url or listener.url, login_of(settings)
    record = ConnectionRecord()
    transport = await stored_transport(settings, record)
    leadership, service, quotas = _build(
        settings, url, gateway, history, login, connections, transport, record
    )
    leadership.set_internal_url(settings.internal_advertised_url or internal.url)
    names = AllowedNames.of(settings)
    limit = settings.request_max_bytes
    app = build_app(service, leadership.metrics, limit, names, connections, quotas)
    files = TlsFiles(listener, internal, trust)
    files.report_to(app)
    bounds = ConnectionBounds(settings, leadership.metrics)

    async def serve_clients() -> None:
        async with authentication_in(app, settings, login, ("broker", "controller")):
            await serve(
                app,
                listener,
                stopping=service.stopping,
                bounds=bounds,
                internal=internal,
                files=files,
            )

    election = asyncio.create_task(leadership.run(), name="leader-election")
    try:
        await serve_beside(election, serve_clients(), "controller")
    finally:
        await gateway.close()
        if not await history.close():
            logger.error("the disk of the history does not answer: not closed")
            exit_at_once(1)


def _history_url(settings: ControllerSettings) -> str:
    """Return where the history is: by default a file of this controller's own."""
    return settings.history_url or url_of(settings.own_directory / "history.db")


def _build(
    settings: ControllerSettings,
    url: str,
    gateway: CommandGateway,
    history: AuditHistory,
    credentials: ZkCredentials | None = None,
    connections: PeerConnections | None = None,
    open_transport: OpenTransport = KazooTransport,
    record: ConnectionRecord | None = None,
) -> tuple[ControllerLeadership, ControllerService, QuotaGate]:
    async def open_store() -> ControllerStore:
        store = ControllerZkStore(credentials, open_transport)
        await store.start(settings.zookeeper_connect, settings.zookeeper_session_timeout_ms)
        return store

    metrics, peers = ControllerMetrics(), HttpPeerAuditClient(connections)
    quotas = QuotaGate(metrics)
    dependencies = ControllerDependencies(
        open_store=open_store,
        gateway=gateway,
        clock=SystemClock(),
        new_id=lambda: uuid.uuid4().hex,
        random_index=secrets.randbelow,
        charge_partitions=lambda count: quotas.admit(
            Quota.PARTITION_CHANGES, current_payer(), count
        ),
        record=record or ConnectionRecord(),
    )
    replicator = AuditReplicator(settings, url, history, peers, dependencies.clock, metrics)
    leadership = ControllerLeadership(settings, url, dependencies, metrics, replicator)
    quotas.settings = lambda: leadership.settings_in_force
    add_gauges(leadership)
    return leadership, ControllerService(leadership), quotas


def _reading(
    leadership: ControllerLeadership, read: Callable[[ActiveController], float]
) -> Callable[[], float]:
    """Return a reading of the active controller, 0 while this process is a standby."""

    def reading() -> float:
        active = leadership.active_controller
        return read(active) if active is not None else 0

    return reading


class _Partitions(ScrapedMetrics):
    """How many partitions are unhealthy, counted in one pass; 0 while this process is a standby."""

    def __init__(self, leadership: ControllerLeadership) -> None:
        super().__init__()
        self._leadership = leadership
        self._found = Unhealthy(0, 0, 0)
        self._shown = (
            self.family("gauge", "controller_offline_partitions", "Partitions without a leader."),
            self.family(
                "gauge",
                "controller_under_replicated_partitions",
                "Partitions whose ISR lacks a replica.",
            ),
            self.family(
                "gauge",
                "controller_under_min_isr_partitions",
                "Partitions whose ISR is smaller than min.insync.replicas: they refuse acks=all.",
            ),
        )

    def sample(self) -> None:
        """Count."""
        active = self._leadership.active_controller
        self._found = count_unhealthy(active.image) if active else Unhealthy(0, 0, 0)

    def rows(self) -> Rows:
        """Return the numbers."""
        return {
            family: [({}, number)] for family, number in zip(self._shown, self._found, strict=True)
        }


def add_gauges(leadership: ControllerLeadership) -> None:
    """Add the gauges that are read from the active controller, 0 while there is none here."""
    leadership.metrics.add(_Partitions(leadership))
    read = partial(_reading, leadership)
    leadership.metrics.watch(
        {
            "active": ("1 while this is the active controller.", read(lambda _: 1)),
            "epoch": (
                "The controller epoch, as far as known.",
                lambda: leadership.active.epoch if leadership.active else 0,
            ),
            "brokers": (
                "Live brokers, which are registered in ZooKeeper.",
                read(lambda active: len(active.image.live)),
            ),
            "brokers_out_of_reach": (
                "Live brokers that the controller is not in touch with.",
                read(lambda active: len(active.out_of_reach())),
            ),
            "failed_brokers": (
                "Brokers that are down, healed or not, until they return or are forgotten.",
                read(_count_down),
            ),
            "healing_chunks": (
                "Self-healing tasks that are not over.",
                read(lambda active: len(list(active.healing.chunks()))),
            ),
            "healing_suspended": (
                "1 while more brokers are down than the self-healing budget allows.",
                read(lambda active: active.healing.is_suspended),
            ),
            "audit_outbox_entries": (
                "Audit entries in ZooKeeper at the last reconciliation, before it deleted any.",
                read(lambda active: active.outbox_retention.present),
            ),
            "audit_stored": (
                "The newest audit entry in this controller's history; -1 before the first.",
                lambda: leadership.audit_replicator.stored if leadership.audit_replicator else -1,
            ),
            "zookeeper_session_reads": (
                "Read requests to ZooKeeper in this session.",
                lambda: leadership.store.reads if leadership.store else 0,
            ),
            "zookeeper_session_writes": (
                "Write requests to ZooKeeper in this session.",
                lambda: leadership.store.writes if leadership.store else 0,
            ),
        }
    )
    _add_reassignment_gauges(leadership)


def _add_reassignment_gauges(leadership: ControllerLeadership) -> None:
    read = partial(_reading, leadership)
    leadership.metrics.watch(
        {
            "reassignments_active": (
                "Partitions being reassigned.",
                read(lambda active: len(active.reassignments)),
            ),
            "reassignments_in_flight": (
                "Partitions in a reassignment step.",
                read(lambda active: active.reassignments.in_flight),
            ),
            "reassignment_bytes_left": (
                "Bytes still to be copied to moving replicas.",
                read(lambda active: active.progress.bytes_left().left),
            ),
        }
    )


def _count_down(active: ActiveController) -> int:
    """Return how many brokers are down: one that has returned is shown while a chunk goes on."""
    return sum(broker not in active.image.live for broker in active.healing.shown())


class _NoBrokers:
    """The gateway of an application that only serves its documentation."""

    async def post(self, to: InternalAddress, path: str, body: bytes, timeout_ms: int) -> bytes:
        """Refuse."""
        raise NotImplementedError

    async def close(self) -> None:
        """Do nothing."""


def openapi_app() -> ServiceApp:
    """Return the application for its OpenAPI document, without IO."""
    settings = ControllerSettings(controller_id=1)
    leadership, service, quotas = _build(
        settings, "http://127.0.0.1:8081", _NoBrokers(), SqlHistory("")
    )
    return build_app(service, leadership.metrics, settings.request_max_bytes, quotas=quotas)
