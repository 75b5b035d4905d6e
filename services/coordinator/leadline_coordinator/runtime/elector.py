"""The coordinator's part in leader election: it runs a `Coordinator` while it leads.

Consumer Coordinator design, sections A and B (`coordinatorElector`); rules R10 and R16. The
election itself is `leadline_common.leader_election`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from leadline_common import consumer_znodes
from leadline_common.clock import Clock
from leadline_common.cluster_time import ClusterTime
from leadline_common.consumer_znodes import CoordinatorRegistration
from leadline_common.leader_election import Claim, LeaderElection, LeadershipTerm
from leadline_common.settings import CoordinatorSettings
from leadline_common.versions import (
    NEWEST_PROTOCOL,
    OLDEST_PROTOCOL,
    SpokenVersions,
    current_release,
    own_versions,
)
from leadline_common.zk.connection_record import ConnectionRecord
from leadline_common.zk.errors import ZkError
from leadline_coordinator.runtime.context import CoordinatorContext, CoordinatorMetrics
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.maintenance import GroupMaintenance
from leadline_coordinator.runtime.ports import BrokerClient, CoordinatorStore


@dataclass(frozen=True, slots=True)
class CoordinatorDependencies:
    """What a coordinator process is given: ZooKeeper, brokers, clock and ids.

    The stores write the `record`.
    """

    open_store: Callable[[], Awaitable[CoordinatorStore]]
    brokers: BrokerClient
    clock: Clock
    new_id: Callable[[], str]
    record: ConnectionRecord = field(default_factory=ConnectionRecord)


_CLUSTER_ID_POLL_S: Final = 0.2


class CoordinatorElector:
    """One coordinator process, as a candidate and as the active coordinator.

    `coordinator` is set while this process is the active one. Other services call it at
    `internal_url`, clients at `url`.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        url: str,
        dependencies: CoordinatorDependencies,
        metrics: CoordinatorMetrics,
    ) -> None:
        self.settings = settings
        self.url = url
        self.internal_url = ""
        self.metrics = metrics
        self.coordinator: Coordinator | None = None
        self.cluster_id = ""
        self.election: LeaderElection[CoordinatorStore] = LeaderElection(self)
        self._dependencies = dependencies
        metrics.groups.members = self._count_members

    def _count_members(self) -> dict[str, int]:
        groups = {} if self.coordinator is None else self.coordinator.groups
        return {name: len(manager.group.members) for name, manager in groups.items()}

    def monotonic_ms(self) -> int:
        """Return the time of this process, in monotonic ms."""
        return self._dependencies.clock.monotonic_ms()

    def no_session(self) -> str:
        """Return that there is no session, and why, as far as this process knows."""
        return self._dependencies.record.no_session(self.election.problem)

    # -- what the election asks for --------------------------------------------

    @property
    def versions(self) -> SpokenVersions:
        """The protocol versions that this process speaks."""
        return own_versions(f"coordinator {self.settings.coordinator_id}")

    async def open_session(self) -> CoordinatorStore:
        """Open a session."""
        return await self._dependencies.open_store()

    @contextlib.asynccontextmanager
    async def prepared(self, store: CoordinatorStore) -> AsyncIterator[None]:
        """Create the nodes that must exist, and read the cluster's id meanwhile."""
        await store.prepare()
        reading = asyncio.create_task(self._read_cluster_id(store), name="cluster-id")
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_cluster_id(self, store: CoordinatorStore) -> None:
        """Read the id; the first controller of a new cluster may not have written it yet."""
        found = ""
        while not found:
            with contextlib.suppress(ZkError):
                found = await store.cluster_id()
            if not found:
                await asyncio.sleep(_CLUSTER_ID_POLL_S)
        self.cluster_id = found

    def claim(self) -> Claim:
        """Return the registration."""
        me, now_ms = self.settings.coordinator_id, self._dependencies.clock.wall_ms()
        registration = CoordinatorRegistration(
            me,
            self.url,
            now_ms,
            release=current_release(),
            oldest_protocol=OLDEST_PROTOCOL,
            newest_protocol=NEWEST_PROTOCOL,
            internal_url=self.internal_url,
        )
        value = consumer_znodes.encode(registration)
        return Claim(me, self.url, value, internal_url=self.internal_url)

    async def serve(self, store: CoordinatorStore, term: LeadershipTerm) -> None:
        """Run the active coordinator."""
        self.metrics.terms.inc()
        context = CoordinatorContext(
            store=store,
            brokers=self._dependencies.brokers,
            term=term,
            settings=self.settings,
            clock=self._dependencies.clock,
            time=ClusterTime(self._dependencies.clock, term.began_ms),
            metrics=self.metrics,
            new_id=self._dependencies.new_id,
        )
        self.coordinator = coordinator = Coordinator(context)
        periodic_work = GroupMaintenance(coordinator).run()
        maintenance = asyncio.create_task(periodic_work, name="group-maintenance")
        try:
            await coordinator.run()
        finally:
            self.coordinator = None
            maintenance.cancel()
            await asyncio.gather(maintenance, return_exceptions=True)
