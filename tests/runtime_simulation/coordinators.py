"""Simulated coordinators: their own runtime, adapters and application, wired as `main` does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from leadline_common.identity import ServiceAddress
from leadline_common.rpc import JSON
from leadline_common.settings import CoordinatorSettings
from leadline_coordinator.adapters.brokers import HttpBrokerClient
from leadline_coordinator.adapters.zk_store import ZkCoordinatorStore
from leadline_coordinator.api.app import build_app
from leadline_coordinator.runtime.context import CoordinatorMetrics
from leadline_coordinator.runtime.elector import CoordinatorDependencies, CoordinatorElector
from leadline_coordinator.runtime.ports import CoordinatorStore
from leadline_coordinator.runtime.service import CoordinatorService
from tests.runtime_simulation.clock import SimulatedClock
from tests.runtime_simulation.network import host_of
from tests.runtime_simulation.services import SESSION_MS, Service
from tests.runtime_simulation.web import NoAnswer, NotReached, Web, WebRequest


@dataclass(eq=False)
class CoordinatorHost(Service):
    """A coordinator."""

    service: CoordinatorService | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The name on the network."""
        return f"coordinator-{self.number}"

    @property
    def is_active(self) -> bool:
        """Whether it believes that it is the active coordinator."""
        return self.running and self.service is not None and self.service.is_active

    async def run(self) -> None:
        """Run the coordinator as `leadline_coordinator.main` does."""
        machine, random = self.machine, self.machine.random()
        settings = coordinator_settings(self.number)

        async def open_store() -> CoordinatorStore:
            store = ZkCoordinatorStore(open_transport=machine.zookeeper.transport)
            await store.start("zookeeper", SESSION_MS)
            return store

        dependencies = CoordinatorDependencies(
            open_store=open_store,
            brokers=SimulatedBrokerClient(machine.web),
            clock=SimulatedClock(),
            new_id=lambda: f"{random.getrandbits(64):016x}",
        )
        elector = CoordinatorElector(
            settings, f"http://{self.name}", dependencies, CoordinatorMetrics()
        )
        self.service = CoordinatorService(elector)
        assert self.process is not None
        app = build_app(self.service, elector.metrics, settings.request_max_bytes)
        machine.web.serve(self.process, app)
        await elector.election.run()


def coordinator_settings(number: int) -> CoordinatorSettings:
    """Return the settings of a coordinator: short limits, so that a run reaches much."""
    return CoordinatorSettings(
        coordinator_id=number,
        zookeeper_session_timeout_ms=SESSION_MS,
        group_ping_interval_ms=200,
        group_stop_limit_ms=1_000,
        group_evict_limit_ms=1_400,
        group_reconnect_grace_ms=400,
        group_static_grace_ms=2_000,
        group_min_session_timeout_ms=1_000,
        group_initial_rebalance_delay_ms=50,
        rebalance_answer_timeout_ms=500,
        offsets_commit_timeout_ms=1_000,
        group_topics_interval_ms=1_000,
        group_lag_interval_ms=0,
    )


class SimulatedBrokerClient(HttpBrokerClient):
    """The coordinator's requests to brokers, over the simulated network."""

    def __init__(self, web: Web) -> None:
        super().__init__()
        self._web = web

    async def close(self) -> None:
        """Do nothing: no connection is kept."""

    async def _send(
        self,
        method: str,
        broker: ServiceAddress,
        path: str,
        limits: aiohttp.ClientTimeout,
        **content: Any,
    ) -> Any:
        query = urlencode(content.get("params", {}), quote_via=quote)
        target, body = f"{path}?{query}" if query else path, content.get("data", b"")
        request = WebRequest(method, target, (("content-type", JSON),), body)
        try:
            answer = await self._web.exchange(
                host_of(broker.url),
                request,
                connect_s=limits.sock_connect or 0.0,
                timeout_s=limits.total or 0.0,
            )
        except (NotReached, NoAnswer) as failure:
            raise OSError(str(failure)) from failure
        if answer.status >= 400:
            raise OSError(f"status {answer.status}")
        return msgspec.json.decode(answer.body)
