"""The controller service: wires settings, adapters, runtime and API, and runs them."""

from __future__ import annotations

import asyncio
import gc
import secrets
import uuid

from fastapi import FastAPI

from leadline_common.clock import SystemClock
from leadline_common.http import bind, serve
from leadline_common.http import run as run_loop
from leadline_common.logs import configure_logging
from leadline_common.settings import ControllerSettings
from leadline_controller.adapters.brokers import BrokerRpcClient
from leadline_controller.adapters.history.store import SqlHistory
from leadline_controller.adapters.peer_audit import HttpPeerAuditClient
from leadline_controller.adapters.zk_store import ControllerZkStore
from leadline_controller.api.app import build_app
from leadline_controller.domain.stats import count_unhealthy
from leadline_controller.runtime.audit.replication import AuditReplicator, AuditStores
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.leadership import ControllerDependencies, ControllerLeadership
from leadline_controller.runtime.ports import BrokerGateway, Store
from leadline_controller.runtime.service import ControllerService

_GC_THRESHOLD = 50_000
"""Full collections walk the whole image; there are no cycles in it to be found."""


def run(settings: ControllerSettings) -> None:
    """Run a controller until SIGTERM or SIGINT; it then gives up its office and ends."""
    configure_logging(
        "controller", settings.controller_id, level=settings.log_level, form=settings.log_format
    )
    gc.set_threshold(_GC_THRESHOLD, 50, 100)
    run_loop(_main(settings))


async def _main(settings: ControllerSettings) -> None:
    listener = bind(settings.listen_host, settings.listen_port)
    gateway = BrokerRpcClient()
    library = AuditStores(SqlHistory(settings.history_url), HttpPeerAuditClient())
    url = settings.advertised_url or listener.url
    leadership, service = _build(settings, url, gateway, library)
    app = build_app(service, leadership.metrics, settings.request_max_bytes)
    office = asyncio.create_task(leadership.run(), name="leadership")
    try:
        await serve(app, listener, stopping=service.stopping)
    finally:
        office.cancel()
        await asyncio.gather(office, return_exceptions=True)
        await gateway.close()
        await library.own.close()


def _build(
    settings: ControllerSettings, url: str, gateway: BrokerGateway, library: AuditStores
) -> tuple[ControllerLeadership, ControllerService]:
    async def open_store() -> Store:
        store = ControllerZkStore()
        await store.start(settings.zookeeper_connect, settings.zookeeper_session_timeout_ms)
        return store

    dependencies = ControllerDependencies(
        open_store=open_store,
        gateway=gateway,
        clock=SystemClock(),
        new_id=lambda: uuid.uuid4().hex,
        random_index=secrets.randbelow,
    )
    metrics = ControllerMetrics()
    historian = AuditReplicator(settings, url, library, dependencies.clock, metrics)
    leadership = ControllerLeadership(settings, url, dependencies, metrics, historian)
    _add_gauges(leadership)
    _add_reassignment_gauges(leadership)
    return leadership, ControllerService(leadership)


def _add_gauges(leadership: ControllerLeadership) -> None:
    def ailing(which: int) -> float:
        return count_unhealthy(leadership.reign.image)[which] if leadership.reign else 0.0

    leadership.metrics.watch(
        {
            "active": (
                "1 while this is the active controller.",
                lambda: leadership.reign is not None,
            ),
            "epoch": (
                "The controller epoch, as far as known.",
                lambda: leadership.active.epoch if leadership.active else 0,
            ),
            "offline_partitions": ("Partitions without a leader.", lambda: ailing(0)),
            "under_replicated_partitions": (
                "Partitions whose ISR lacks a replica.",
                lambda: ailing(1),
            ),
            "failed_brokers": (
                "Brokers that are noted as failed.",
                lambda: len(leadership.reign.healing.failed) if leadership.reign else 0,
            ),
            "healing_chunks": (
                "Chunks of failed brokers' partitions that are not over.",
                lambda: len(list(leadership.reign.healing.chunks())) if leadership.reign else 0,
            ),
            "healing_suspended": (
                "1 while more brokers are down than the budget of healing allows.",
                lambda: leadership.reign is not None and leadership.reign.healing.is_suspended,
            ),
            "audit_stored": (
                "The newest audit entry in this controller's history; -1 before the first.",
                lambda: leadership.historian.stored if leadership.historian else -1,
            ),
            "zookeeper_session_reads": (
                "Requests to ZooKeeper for reading, in this session.",
                lambda: leadership.store.reads if leadership.store else 0,
            ),
            "zookeeper_session_writes": (
                "Requests to ZooKeeper for writing, in this session.",
                lambda: leadership.store.writes if leadership.store else 0,
            ),
        }
    )


def _add_reassignment_gauges(leadership: ControllerLeadership) -> None:
    leadership.metrics.watch(
        {
            "reassignments_active": (
                "Partitions that are on their way to other replicas.",
                lambda: len(leadership.reign.reassignments.agenda) if leadership.reign else 0,
            ),
            "reassignments_in_flight": (
                "Partitions that are in a step of their reassignment.",
                lambda: leadership.reign.reassignments.agenda.in_flight if leadership.reign else 0,
            ),
            "reassignment_bytes_left": (
                "To be copied to the replicas that are moving now.",
                lambda: leadership.reign.progress.bytes_left().left if leadership.reign else 0,
            ),
        }
    )


class _NoBrokers:
    """The gateway of an application that only shows its documentation."""

    async def post(self, url: str, path: str, body: bytes, timeout_ms: int) -> bytes:
        """Refuse: nothing is ever sent from here."""
        raise NotImplementedError

    async def close(self) -> None:
        """Have nothing to close."""


def openapi_app() -> FastAPI:
    """Return the application without any IO, for its OpenAPI document."""
    settings = ControllerSettings(controller_id=1)
    library = AuditStores(SqlHistory(""), HttpPeerAuditClient())
    leadership, service = _build(settings, "http://127.0.0.1:8081", _NoBrokers(), library)
    return build_app(service, leadership.metrics, settings.request_max_bytes)
