"""Controllers in this process against a real ZooKeeper, and small brokers that record commands."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from leadline_common import rpc, znodes
from leadline_common.clock import SystemClock
from leadline_common.http.internal_listener import InternalListener
from leadline_common.http.listeners import Listener, bind
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.http.tls import InternalProtocol, InternalTls
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.settings import ControllerSettings
from leadline_common.zk.errors import NodeExists
from leadline_common.zk.ops import CreateOp, MultiResults, Op, SetOp
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import BrokerRegistration, PartitionState
from leadline_controller.adapters.brokers import BrokerRpcClient
from leadline_controller.adapters.history.store import SqlHistory
from leadline_controller.adapters.peer_audit import HttpPeerAuditClient
from leadline_controller.adapters.zk_store import ControllerZkStore
from leadline_controller.api.app import build_app
from leadline_controller.main import add_gauges
from leadline_controller.runtime.audit.replication import AuditReplicator
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.leadership import ControllerDependencies, ControllerLeadership
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.service import ControllerService
from tests.support.services.http_service import KEEP_ALIVE_S
from tests.support.services.identities import call_as, tls_of
from tests.support.services.zookeeper import until

SESSION_TIMEOUT_MS = 4000
_BROKER_SESSION_TIMEOUT_MS = 30_000
"""A recording broker leaves by closing its session, and never because the machine is busy."""


@contextlib.asynccontextmanager
async def served(
    app: Any, listener: Listener, tls: InternalTls | None = None
) -> AsyncIterator[None]:
    """Serve an application in this loop for the length of the `with` statement.

    With `tls`, the listener is an internal one.
    """
    config = uvicorn.Config(
        app,
        http=InternalProtocol if tls else "auto",
        ssl_context_factory=(lambda *_: tls.server) if tls else None,
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # not ours to take
    task = asyncio.create_task(server.serve(sockets=[listener.socket]))
    await until(lambda: server.started or task.done(), "the server starts")
    try:
        yield
    finally:
        server.should_exit = True
        await task


class RecordingBroker:
    """A broker that registers, takes every command, and remembers what it received.

    `refuse_next` codes are answered, one for each coming LeaderAndISR, for all of
    its partitions; `refused_topics` are refused always, with a code, and reported as late.
    While `deaf` it answers 503 to everything.
    """

    def __init__(self, broker_id: int, hosts: str, rack: str | None = None) -> None:
        self.id = broker_id
        self.rack = rack
        self.roles: dict[tuple[str, int], rpc.PartitionRow] = {}
        self.topic_ids: dict[str, str] = {}
        self.leader_and_isr: list[rpc.LeaderAndIsrRequest] = []
        self.stops: list[rpc.StopReplicaRequest] = []
        self.updates: list[rpc.UpdateMetadataRequest] = []
        self.roles_bytes = 0
        self.metadata: dict[str, rpc.TopicRows] = {}
        self.metadata_version = 0
        self.refuse_next: list[int] = []
        self.refused_topics: dict[str, int] = {}
        self.late: dict[tuple[str, int], rpc.LateRow] = {}
        self.deaf = False
        self.incarnation = -1
        self._hosts = hosts
        self._session: ZkSession | None = None
        self._listener = bind("127.0.0.1", 0)
        self._stack = contextlib.AsyncExitStack()

    @property
    def tls(self) -> InternalTls:
        return tls_of("broker", self.id)

    @property
    def identity(self) -> ServiceIdentity:
        return ServiceIdentity("broker", self.id)

    @property
    def url(self) -> str:
        return InternalListener(self._listener, self.tls).url

    @property
    def is_registered(self) -> bool:
        return self._session is not None

    async def start(self) -> None:
        routes = [
            Route(rpc.LEADER_AND_ISR_PATH, self._on_roles, methods=["POST"]),
            Route(rpc.STOP_REPLICA_PATH, self._on_stop, methods=["POST"]),
            Route(rpc.UPDATE_METADATA_PATH, self._on_metadata, methods=["POST"]),
        ]
        app = Starlette(routes=routes)
        await self._stack.enter_async_context(served(app, self._listener, self.tls))
        await self.register()

    async def register(self) -> None:
        """Register as a new incarnation, over a new session."""
        session = ZkSession()
        await session.start(self._hosts, _BROKER_SESSION_TIMEOUT_MS)
        for path in znodes.PERSISTENT_PATHS:
            await session.ensure_path(path)
        epoch_path = znodes.broker_epoch_path(self.id)
        with contextlib.suppress(NodeExists):
            await session.create(epoch_path)
        _, stat = await session.get(epoch_path)
        self.incarnation = stat.version + 1
        registration = BrokerRegistration(
            self.id,
            "127.0.0.1",
            self._listener.port,
            self.url,
            self.rack,
            self.incarnation,
            internal_url=self.url,
        )
        await session.multi(
            [
                SetOp(epoch_path, b"", stat.version),
                CreateOp(
                    znodes.broker_id_path(self.id),
                    znodes.encode_value(registration),
                    ephemeral=True,
                ),
            ]
        )
        self._session = session

    async def leave(self) -> None:
        """End the session, as a crash does once the session has expired."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def bounce(self) -> None:
        """Come back as a new incarnation without being gone for long."""
        await self.leave()
        self.roles.clear()
        self.metadata_version = 0
        await self.register()

    async def stop(self) -> None:
        await self.leave()
        await self._stack.aclose()

    def heartbeat(self, **changes: Any) -> rpc.HeartbeatRequest:
        """Return what this broker would say of itself."""
        triples = [(self.topic_ids[t], p, row.leader_epoch) for (t, p), row in self.roles.items()]
        beat = rpc.HeartbeatRequest(
            broker_id=self.id,
            incarnation=self.incarnation,
            controller_epoch=1,
            granted=True,
            metadata_version=self.metadata_version,
            replicas=len(triples),
            digest=rpc.digest_of(triples),
            late=list(self.late.values()),
        )
        return msgspec.structs.replace(beat, **changes)

    async def _on_roles(self, request: Request) -> Response:
        body = await self._body(request)
        if body is None:
            return Response(status_code=503)
        self.roles_bytes += len(body)
        command = msgspec.json.decode(body, type=rpc.LeaderAndIsrRequest)
        self.leader_and_isr.append(command)
        code = self.refuse_next.pop(0) if self.refuse_next else rpc.NO_ERROR
        if code == rpc.NO_ERROR and command.is_init:
            self.roles.clear()
        codes = [
            [self._take(topic, row, code) for row in topic.partitions] for topic in command.topics
        ]
        return self._answer(rpc.CommandResponse(command.controller_epoch, self.incarnation, codes))

    def _take(self, topic: rpc.TopicRows, row: rpc.PartitionRow, code: int) -> int:
        """Take a role unless it is refused; return its code."""
        key = (topic.topic, row.partition)
        code = code or self.refused_topics.get(topic.topic, rpc.NO_ERROR)
        if code == rpc.NO_ERROR:
            self.topic_ids[topic.topic] = topic.topic_id
            self.roles[key] = row
            self.late.pop(key, None)
        elif topic.topic in self.refused_topics:
            taken = self.roles[key].leader_epoch if key in self.roles else -1
            self.late[key] = rpc.LateRow(topic.topic, topic.topic_id, row.partition, taken)
        return code

    async def _on_stop(self, request: Request) -> Response:
        body = await self._body(request)
        if body is None:
            return Response(status_code=503)
        command = msgspec.json.decode(body, type=rpc.StopReplicaRequest)
        self.stops.append(command)
        for topic in command.topics:
            for row in topic.partitions:
                self.roles.pop((topic.topic, row.partition), None)
        codes = [[rpc.NO_ERROR] * len(topic.partitions) for topic in command.topics]
        return self._answer(rpc.CommandResponse(command.controller_epoch, self.incarnation, codes))

    async def _on_metadata(self, request: Request) -> Response:
        body = await self._body(request)
        if body is None:
            return Response(status_code=503)
        command = msgspec.json.decode(body, type=rpc.UpdateMetadataRequest)
        if not command.full and command.base_version != self.metadata_version:
            return Response(b'{"error_code": 41250, "message": "other base"}', status_code=412)
        self.updates.append(command)
        if command.full:
            self.metadata.clear()
        for name in command.deleted:
            self.metadata.pop(name, None)
        self.metadata |= {topic.topic: topic for topic in command.topics}
        self.metadata_version = command.version
        return self._answer(
            rpc.UpdateMetadataResponse(command.controller.epoch, self.metadata_version)
        )

    async def _body(self, request: Request) -> bytes | None:
        body = await request.body()
        return None if self.deaf else body

    def _answer(self, struct: Any) -> Response:
        return Response(msgspec.json.encode(struct), media_type=rpc.JSON)


class RunningController:
    """A controller with its API, in this process, over stores of `store_type`."""

    def __init__(
        self,
        controller_id: int,
        hosts: str,
        *,
        store_type: type[ControllerZkStore] = ControllerZkStore,
        **settings: Any,
    ) -> None:
        options = {
            "controller_id": controller_id,
            "zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS,
            "reconcile_interval_ms": 60_000,
            "command_ack_timeout_ms": 5_000,
            "broker_contact_timeout_ms": 3_600_000,  # These brokers send no heartbeats.
        } | settings
        self.settings = ControllerSettings.model_validate(options)
        self.listener = bind("127.0.0.1", 0)
        tls = tls_of("controller", controller_id)
        self._internal = InternalListener(bind("127.0.0.1", 0), tls)
        self.gateway = BrokerRpcClient(ServiceCalls(PeerConnections(tls)))
        self.stores: list[ControllerZkStore] = []
        self._hosts = hosts
        self._store_type = store_type
        dependencies = ControllerDependencies(
            open_store=self._open_store,
            gateway=self.gateway,
            clock=SystemClock(),
            new_id=lambda: uuid.uuid4().hex,
            random_index=lambda _: 0,
        )
        metrics, url = ControllerMetrics(), self.listener.url
        history, peers = SqlHistory(self.settings.history_url), HttpPeerAuditClient()
        self.replicator = AuditReplicator(
            self.settings, url, history, peers, dependencies.clock, metrics
        )
        self.leadership = ControllerLeadership(
            self.settings, url, dependencies, metrics, self.replicator
        )
        self.leadership.internal_url = self._internal.url
        self.service = ControllerService(self.leadership)
        add_gauges(self.leadership)
        self.app = build_app(self.service, self.leadership.metrics, 16 * 1024 * 1024)
        self.http = httpx.AsyncClient(base_url=self.listener.url, timeout=60)
        self._task: asyncio.Task[None] | None = None
        self._stack = contextlib.AsyncExitStack()

    async def _open_store(self) -> ControllerStore:
        store = self._store_type()
        await store.start(self._hosts, self.settings.zookeeper_session_timeout_ms)
        self.stores.append(store)
        return store

    async def start(self) -> None:
        await self._stack.enter_async_context(served(self.app, self.listener))
        internal = self._internal
        await self._stack.enter_async_context(served(self.app, internal.listener, internal.tls))
        self.resume()

    def resume(self) -> None:
        self._task = asyncio.create_task(self.leadership.run())

    async def retire(self) -> None:
        """Resign cleanly; the API goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def stop(self) -> None:
        await self.retire()
        await self.http.aclose()
        await self._stack.aclose()
        await self.app.forwarder.close()
        await self.gateway.close()
        await self.replicator.history.close()

    @property
    def internal_address(self) -> InternalAddress:
        return InternalAddress(
            ServiceIdentity("controller", self.settings.controller_id), self._internal.url
        )

    async def heartbeat(self, beat: rpc.HeartbeatRequest) -> rpc.HeartbeatResponse:
        """Send a broker's heartbeat with the certificate of that broker.

        Raises:
            LeadlineError: the controller refused.

        """
        broker = ServiceIdentity("broker", beat.broker_id)
        answer = await call_as(broker, self.internal_address, rpc.HEARTBEAT_PATH, beat)
        return msgspec.json.decode(answer, type=rpc.HeartbeatResponse)

    @property
    def is_active(self) -> bool:
        return self.service.is_active

    @property
    def epoch(self) -> int:
        return self.leadership.active.epoch if self.leadership.active else 0


async def active(controllers: Sequence[RunningController]) -> RunningController:
    """Wait until one of the controllers is active, and return it."""
    await until(lambda: any(c.is_active for c in controllers), "a controller is active")
    return next(c for c in controllers if c.is_active)


async def read_state(session: ZkSession, topic: str, partition: int) -> PartitionState:
    data, _ = await session.get(znodes.state_path(topic, partition))
    return znodes.decode_state(data)


class MortalStore(ControllerZkStore):
    """A store that ends its process, so to speak, just before or just after its k-th write.

    `writes_left` counts down from k; a negative number never gets there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = -1
        self.dies_after_sending = False

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        self.writes_left -= 1
        if self.writes_left != 0:
            return super().submit(ops)
        if self.dies_after_sending:
            super().submit(ops).add_done_callback(lambda answer: answer.exception())
        raise asyncio.CancelledError
