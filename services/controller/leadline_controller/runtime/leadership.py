"""The controller's part in leader election: it runs an `ActiveController` while it leads.

Replication V3, section D; "Leader election in ZooKeeper", election of the Kafka controller.
The election itself is `leadline_common.leader_election`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from leadline_common import znodes
from leadline_common.audit_outbox import audit_op
from leadline_common.cause import new_cause
from leadline_common.clock import Clock
from leadline_common.cluster_time import ClusterTime
from leadline_common.leader_election import Claim, LeaderElection, LeadershipTerm
from leadline_common.rpc import ControllerRow
from leadline_common.settings import ControllerSettings
from leadline_common.versions import (
    NEWEST_PROTOCOL,
    OLDEST_PROTOCOL,
    SpokenVersions,
    current_release,
    own_versions,
)
from leadline_common.zk.connection_record import ConnectionRecord
from leadline_common.znodes import AuditEntry, ControllerRegistration
from leadline_controller.domain.cluster import ClusterPolicy
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.audit.replication import AuditReplicator
from leadline_controller.runtime.engine.context import ControllerContext
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.image_loader import load_image
from leadline_controller.runtime.ports import CommandGateway, ControllerStore


@dataclass(frozen=True, slots=True)
class ControllerDependencies:
    """What a controller process is given: ZooKeeper, brokers, clock, ids and randomness.

    `random_index(n)` returns a number in [0, n). `charge_partitions(n)` raises QuotaExceeded if
    the sender of a request may not create or delete partitions now. The stores write the `record`.
    """

    open_store: Callable[[], Awaitable[ControllerStore]]
    gateway: CommandGateway
    clock: Clock
    new_id: Callable[[], str]
    random_index: Callable[[int], int]
    charge_partitions: Callable[[int], None] = lambda _: None
    record: ConnectionRecord = field(default_factory=ConnectionRecord)


@dataclass(eq=False)
class ControllerLeadership:
    """One controller process, as a candidate and as the active controller.

    `active_controller` is set while this process is the active controller.
    `audit_replicator` keeps the history, on a standby as well; without one this process has none.
    Brokers call it at `internal_url`, clients at `url`.
    """

    settings: ControllerSettings
    url: str
    dependencies: ControllerDependencies
    metrics: ControllerMetrics
    audit_replicator: AuditReplicator | None = None
    internal_url: str = ""
    active_controller: ActiveController | None = field(default=None, init=False)
    cluster_id: str = field(default="", init=False)
    _has_led: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._election: LeaderElection[ControllerStore] = LeaderElection(self)

    @property
    def store(self) -> ControllerStore | None:
        """The open ZooKeeper session, None without one."""
        return self._election.session

    @property
    def settings_in_force(self) -> ControllerSettings:
        """The settings as they were changed at run time, if this process is active."""
        active = self.active_controller
        return self.settings if active is None else active.configs.current()

    @property
    def active(self) -> ControllerRow | None:
        """The active controller as far as this process knows."""
        leader = self._election.leader
        if leader is None:
            return None
        return ControllerRow(leader.id, leader.url, leader.epoch, leader.internal_url)

    def no_session(self) -> str:
        """Return that there is no session, and why, as far as this process knows."""
        return self.dependencies.record.no_session(self._election.problem)

    async def run(self) -> None:
        """Take part in elections until cancelled, then close the session.

        Raises:
            IncompatibleRelease: this process may not lead beside a service that is registered.

        """
        await self._election.run()

    def set_internal_url(self, url: str) -> None:
        """Set where other services call this process, before it runs."""
        self.internal_url = url
        if self.audit_replicator is not None:
            self.audit_replicator.internal_url = url

    # -- what the election asks for --------------------------------------------

    @property
    def versions(self) -> SpokenVersions:
        """The protocol versions that this process speaks."""
        return own_versions(f"controller {self.settings.controller_id}")

    async def open_session(self) -> ControllerStore:
        """Open a session.

        Raises:
            ZkError: ZooKeeper is not available.

        """
        self._forget_last_term()
        return await self.dependencies.open_store()

    def _forget_last_term(self) -> None:
        """Free what the last term of this process has left, which is in cycles.

        It includes an image of the whole cluster. The next term's `freeze` would keep it for ever.
        """
        if self._has_led:
            self._has_led = False
            gc.unfreeze()
            gc.collect()

    @contextlib.asynccontextmanager
    async def prepared(self, store: ControllerStore) -> AsyncIterator[None]:
        """Create the nodes that must exist, and replicate the audit while `store` is used."""
        self.cluster_id = await store.prepare(self.dependencies.new_id())
        if self.audit_replicator is None:
            yield
            return
        await self.audit_replicator.require_no_older_copy(store.outbox, self.cluster_id)
        follow = self.audit_replicator.follow(store.outbox, self.cluster_id, self._until_settled)
        following = asyncio.create_task(follow, name="audit-replication")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _until_settled(self) -> None:
        """Wait until no broker has commands outstanding; a standby cannot know, and rests."""
        if self.active_controller is None and self.audit_replicator is not None:
            await self.audit_replicator.rest()
        elif self.active_controller is not None:
            await self.active_controller.dispatcher.until(self.active_controller.dispatcher.settled)

    def claim(self) -> Claim:
        """Return the registration, with the audit entry of the election."""
        me = self._registration()
        entry = AuditEntry(
            time=me.timestamp,
            cause=new_cause(),
            actor=f"controller-{me.id}",
            kind="controller_elected",
            after=msgspec.structs.asdict(me) | {"extra": None},
        )
        audit = audit_op(entry)
        return Claim(me.id, me.url, znodes.encode_value(me), (audit,), me.internal_url)

    async def serve(self, store: ControllerStore, term: LeadershipTerm) -> None:
        """Load the cluster and run the active controller.

        Raises:
            TermEnded: the term has ended.
            ZkError: ZooKeeper was lost.

        """
        self.metrics.terms.inc()
        self._has_led = True
        policy = ClusterPolicy(
            self.settings.min_insync_replicas, self.settings.unclean_leader_election_enable
        )
        image = await load_image(store, policy, term)
        gc.freeze()  # a full collection would walk the image each time and free nothing
        context = ControllerContext(
            store=store,
            registration=self._registration(),
            term=term,
            cluster_id=self.cluster_id,
            settings=self.settings,
            clock=self.dependencies.clock,
            time=ClusterTime(self.dependencies.clock, term.began_ms),
            metrics=self.metrics,
            new_id=self.dependencies.new_id,
            random_index=self.dependencies.random_index,
            charge_partitions=self.dependencies.charge_partitions,
        )
        self.active_controller = ActiveController(
            context, image, self.dependencies.gateway, self.audit_replicator
        )
        try:
            await self.active_controller.run()
        finally:
            self.active_controller = None

    def _registration(self) -> ControllerRegistration:
        return ControllerRegistration(
            self.settings.controller_id,
            self.url,
            self.dependencies.clock.wall_ms(),
            internal_url=self.internal_url,
            release=current_release(),
            oldest_protocol=OLDEST_PROTOCOL,
            newest_protocol=NEWEST_PROTOCOL,
        )
