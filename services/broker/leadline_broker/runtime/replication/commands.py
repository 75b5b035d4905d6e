"""The controller's commands: LeaderAndISR, StopReplica and UpdateMetadata.

Replication V3, section C, with rules R1, R9, R11 and R12.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import structlog

from leadline_broker.domain.replica import Role
from leadline_broker.domain.state import NOTHING_ORDERED, Order, ReplicaKey
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.heartbeat import Heartbeats
from leadline_broker.runtime.cluster.metadata import (
    NOTHING_PREPARED,
    ClusterMetadataCache,
    PreparedTopics,
)
from leadline_broker.runtime.ports import LogStore
from leadline_broker.runtime.replication.command_rows import (
    by_topic,
    is_of_removed_partition,
    keys_of,
)
from leadline_broker.runtime.replication.late_roles import LateRole, LateRoles
from leadline_broker.runtime.replication.partition import Execute, Partition, PartitionSettings
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.replication.throttle import MovingThrottle
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_client.errors import (
    BrokerFenced,
    FencedLeaderEpoch,
    InvalidRequest,
    LeadlineError,
    StaleControllerEpoch,
    StorageFailed,
    UnknownLeaderEpoch,
)
from leadline_client.wire import TopicPartition
from leadline_common.clock import Clock
from leadline_common.rpc import (
    NO_ERROR,
    CommandResponse,
    LeaderAndIsrRequest,
    PartitionRow,
    StopReplicaRequest,
    StopRow,
    TopicRows,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from leadline_common.slices import timed_turns

logger = structlog.get_logger(__name__)

_REMEMBERED_STOPS: Final = 50_000
_SETTLING_CHECKS: Final = 50
_SETTLING_PAUSE_S: Final = 0.02
_REASONS: Final = {
    FencedLeaderEpoch.code: "the replica has stepped down in this leader epoch",
    UnknownLeaderEpoch.code: "its log has records of a later leader epoch, so it is damaged",
    StorageFailed.code: "its log directory is not the one that its membership is bound to",
}
"""Why a replica refuses a grant of its present leader epoch or a later one, by code."""


class _Stop(NamedTuple):
    """The latest deletion of a replica: its leader epoch, and which request ordered it."""

    leader_epoch: int
    order: Order


@dataclass(eq=False, kw_only=True)
class ControllerCommands:
    """Executes the commands of the controller. Owned by the event loop.

    `in_background(work)` runs the removal of files in a thread.
    """

    broker_state: BrokerState
    replicas: ReplicaManager
    logs: LogStore
    metadata: ClusterMetadataCache
    settings: TopicSettings
    heartbeats: Heartbeats
    throttle: MovingThrottle
    execute: Execute
    clock: Clock
    in_background: Callable[[Callable[[], None]], object]
    late_roles: LateRoles = field(default_factory=LateRoles, init=False)
    _stopped: OrderedDict[ReplicaKey, _Stop] = field(default_factory=OrderedDict, init=False)
    _latest: Order = field(default=NOTHING_ORDERED, init=False)
    _applied_settings: dict[str, PartitionSettings] = field(default_factory=dict, init=False)

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch that this broker has accepted."""
        return self.logs.controller_epoch

    def _accept_epoch(self, controller_epoch: int) -> None:
        """Store the controller's epoch before executing its command (rules R1, R11).

        Raises:
            StaleControllerEpoch: a later controller has been accepted.
            StorageFailed: the epoch could not be stored; the controller sends again.

        """
        known = self.logs.controller_epoch
        if controller_epoch < known:
            raise StaleControllerEpoch(f"controller epoch {known} is known", controller_epoch=known)
        if controller_epoch > known:
            self.logs.persist_controller_epoch(controller_epoch)

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> CommandResponse:
        """Take the granted roles in slices (on_LeaderAndISRCommand).

        A request with `is_init` contains all roles of this broker: other replicas become
        strays, and the broker may serve from now on. A request that was overtaken by a newer
        one, before or between its slices, makes no strays, because it does not know the later
        roles.

        Raises:
            InvalidRequest, StaleIncarnation, StaleControllerEpoch: see rule R1. Between slices,
                too: then some roles are taken.
            BrokerFenced: this incarnation has no full grant yet.

        """
        granted = self.broker_state.granted
        adding = any(row.adding for topic in request.topics for row in topic.partitions)
        if adding:
            self.throttle.on_replicas_added()
        self._accept(request)
        if not (granted or request.is_init):
            raise BrokerFenced("the broker has no full grant yet")
        self.broker_state.update_addresses(request.brokers)
        order = (request.controller_epoch, request.sequence)
        self._latest = max(order, self._latest)
        full_grant = await keys_of(request.topics) if request.is_init else frozenset()
        codes = await self._grant_all(request, order)
        if request.is_init and await self._drop_others(request, order, full_grant):
            if not granted:
                logger.info("granted", replicas=len(self.replicas), cause=request.cause)
            self.broker_state.granted = True
        if adding or not granted:
            self.heartbeats.trigger()
        return CommandResponse(self.controller_epoch, self.broker_state.incarnation, codes)

    def _accept(self, request: LeaderAndIsrRequest | StopReplicaRequest) -> None:
        self.broker_state.require_addressed(request.broker_id, request.incarnation)
        self._accept_epoch(request.controller_epoch)

    async def _grant_all(self, request: LeaderAndIsrRequest, order: Order) -> list[list[int]]:
        """Apply all rows, and return their error codes by topic."""
        rows = ((topic, row) for topic in request.topics for row in topic.partitions)
        codes: list[int] = []
        async for turn in timed_turns(rows, self.clock.monotonic_ms):
            self._accept(request)
            now = self.clock.monotonic_ms()
            for topic, some in groupby(turn, itemgetter(0)):
                settings = self.settings.of(topic.configs)  # Those of the broker may have changed.
                codes += [self._grant(topic, row, settings, now, order) for _, row in some]
            self.replicas.long_lived.keep_from_collector()
        return by_topic(request.topics, codes)

    def _grant(
        self,
        topic: TopicRows,
        row: PartitionRow,
        settings: PartitionSettings,
        now: int,
        order: Order,
    ) -> int:
        """Apply one row and return its error code."""
        key = (topic.topic_id, row.partition)
        directory_epoch = self.broker_state.directory_epoch_of(key)
        known = self.replicas.find(key)
        if known is not None and known.repeats(row, settings, directory_epoch, order):
            known.replica.state.order = order
            self.late_roles.forget(key)
            return NO_ERROR
        try:
            partition = self._kept_or_created(known, topic, row, settings, order)
            if row.leader == self.broker_state.broker_id and partition.log.lacks_records:
                raise StorageFailed("its log was to begin again, and lacks the space")
            if order >= self._latest:
                self.replicas.configure(partition, settings)
                # Later metadata may bring back the settings that it applied before.
                if self._applied_settings.get(topic.topic_id) is not settings:
                    self._applied_settings.pop(topic.topic_id, None)
            partition.replica.state.directory_epoch = directory_epoch
            code, effects = partition.replica.on_leader_and_isr(row, now, order)
            self.execute(partition, effects)
        except LeadlineError as error:
            if not isinstance(error, FencedLeaderEpoch | InvalidRequest):
                self._mark_late(topic, row, error.message, now)
            return error.code
        if code == NO_ERROR:
            self.replicas.applied(partition)
            self.late_roles.forget(partition.key)
        elif code in _REASONS and row.leader_epoch >= partition.replica.state.leader_epoch:
            self._mark_late(topic, row, _REASONS[code], now)
        return code

    def _mark_late(self, topic: TopicRows, row: PartitionRow, reason: str, now: int) -> None:
        topic_partition = TopicPartition(topic.topic, row.partition)
        late = LateRole(topic_partition, topic.topic_id, row.leader_epoch, reason, now)
        logger.warning("grant refused", topic_partition=topic_partition, reason=reason)
        self.late_roles.refused(late)

    def _kept_or_created(
        self,
        partition: Partition | None,
        topic: TopicRows,
        row: PartitionRow,
        settings: PartitionSettings,
        order: Order,
    ) -> Partition:
        """Return the replica of a row, if there is none yet a new one.

        A replica of an earlier partition with this number, possibly restored from a stray, is
        deleted first. All its records have epochs below the first epoch of this partition, so
        the earlier partition has been removed in the meantime (rule R12).
        """
        while partition is None or is_of_removed_partition(partition, row):
            if partition is not None:
                logger.warning(
                    "replica of a removed partition deleted",
                    topic=topic.topic,
                    partition=row.partition,
                    first_epoch=row.first_epoch,
                )
                self.in_background(self.replicas.delete(partition))
            self._require_startable(topic, row, order)
            partition = self.replicas.create(topic.topic, topic.topic_id, row.partition, settings)
        return partition

    def _require_startable(self, topic: TopicRows, row: PartitionRow, order: Order) -> None:
        """Refuse a grant that does not include this broker, or that precedes a StopReplica.

        An overtaken grant may precede one: a deleted replica no longer knows which epochs it
        led. A reassignment may add a replica again in the epoch in which it was removed.
        """
        if self.broker_state.broker_id not in row.replicas:
            raise InvalidRequest("the grant does not assign the partition to this broker")
        if order < self._latest:
            raise FencedLeaderEpoch("the grant was overtaken by a newer one")
        stop = self._stopped.get((topic.topic_id, row.partition))
        if stop is None:
            return
        is_added = self.broker_state.broker_id in row.adding
        again = row.leader_epoch == stop.leader_epoch and is_added and order > stop.order
        if row.leader_epoch <= stop.leader_epoch and not again:
            raise FencedLeaderEpoch("the replica was stopped after this grant")

    async def _drop_others(
        self, request: LeaderAndIsrRequest, order: Order, granted: Set[ReplicaKey]
    ) -> bool:
        """Set aside the replicas that a full grant does not list, and forget their lost logs.

        Return whether the grant is still the latest request. If not, some replicas are left.
        """
        others = [one for one in self.replicas.all() if one.key not in granted]
        async for turn in timed_turns(others, self.clock.monotonic_ms):
            self._accept(request)
            if order != self._latest:
                break
            for partition in turn:
                if self.replicas.find(partition.key) is partition:  # Not deleted meanwhile.
                    self._set_aside(partition)
        if order != self._latest:
            return False
        self.late_roles.keep_only(granted)
        self.logs.forget_lost(granted)
        return True

    def _set_aside(self, partition: Partition) -> None:
        logger.warning(
            "replica made stray",
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
        )
        self.replicas.make_stray(partition)

    async def stop_replica(self, request: StopReplicaRequest) -> CommandResponse:
        """Stop replicas, and delete their logs if requested (stopReplica).

        A row succeeds if this broker has no such replica, or has one of another topic id. To delete
        a log takes two fsyncs, so other work is done between some rows and the next.

        Raises:
            InvalidRequest, StaleIncarnation, StaleControllerEpoch: see rule R1. Between rows,
                too: then some replicas are stopped.

        """
        self._accept(request)
        order = (request.controller_epoch, request.sequence) if request.sequence else None
        rows = ((topic.topic_id, row) for topic in request.topics for row in topic.partitions)
        found: list[int] = []
        async for turn in timed_turns(rows, self.clock.monotonic_ms):
            self._accept(request)
            found += [self._stop(*each, order, delete=request.delete) for each in turn]
        codes = by_topic(request.topics, found)
        return CommandResponse(self.controller_epoch, self.broker_state.incarnation, codes)

    def _stop(self, topic_id: str, row: StopRow, order: Order | None, *, delete: bool) -> int:
        """Stop one replica, and return its error code.

        A reassignment may add a replica again in the epoch in which it was removed, so `order` must
        tell a delayed request too: it would delete the log of a replica that is in sync by now.
        """
        key = (topic_id, row.partition)
        partition = self.replicas.find(key)
        if partition is not None:
            state = partition.replica.state
            is_overtaken = order is not None and order < state.order
            if state.leader_epoch > row.leader_epoch or is_overtaken:
                return FencedLeaderEpoch.code
        self.late_roles.forget(key)
        if delete:
            self._remember_stop(key, _Stop(row.leader_epoch, order or NOTHING_ORDERED))
        try:
            if partition is None:
                if delete and self.replicas.logs.is_unused(key):
                    self.in_background(self.replicas.logs.delete(key))
            elif delete:
                self.in_background(self.replicas.delete(partition))
            elif partition.replica.role is Role.FOLLOWER and partition.replica.has_parked:
                self._fence_later(partition, row.leader_epoch, _SETTLING_CHECKS)
            else:
                self.replicas.fence(partition)
        except LeadlineError as error:
            return error.code
        return NO_ERROR

    def _fence_later(self, partition: Partition, leader_epoch: int, checks: int) -> None:
        """Stop a former leader once its waiting produces are answered, or after a short time.

        The next fetches from the new leader answer them.
        """
        replica = partition.replica
        if self.replicas.find(partition.key) is not partition:
            return
        if replica.state.leader_epoch > leader_epoch or replica.role is not Role.FOLLOWER:
            return
        if replica.has_parked and checks:
            loop = asyncio.get_running_loop()
            again = (partition, leader_epoch, checks - 1)
            loop.call_later(_SETTLING_PAUSE_S, self._fence_later, *again)
        else:
            self.replicas.fence(partition)

    def update_metadata(
        self, request: UpdateMetadataRequest, prepared: PreparedTopics = NOTHING_PREPARED
    ) -> UpdateMetadataResponse:
        """Apply the cluster's metadata and the topics' settings.

        Raises:
            InvalidRequest, StaleIncarnation, StaleControllerEpoch: see rule R1.
            StaleVersion: see `ClusterMetadataCache.apply`.

        """
        self.broker_state.require_addressed(request.broker_id, request.incarnation)
        self._accept_epoch(request.controller.epoch)
        version = self.metadata.apply(request, prepared)
        for topic in request.topics:
            self._configure_topic(topic)
        self.broker_state.update_addresses(request.brokers)
        return UpdateMetadataResponse(self.controller_epoch, version)

    def _configure_topic(self, topic: TopicRows) -> None:
        """Apply a topic's settings, which may change within a leader epoch."""
        settings = self.settings.of(topic.configs)
        if self._applied_settings.get(topic.topic_id) is settings:
            return
        self._applied_settings[topic.topic_id] = settings
        for row in topic.partitions:
            partition = self.replicas.find((topic.topic_id, row.partition))
            if partition is not None:
                self.replicas.configure(partition, settings)

    def _remember_stop(self, key: ReplicaKey, stop: _Stop) -> None:
        known = self._stopped.get(key, stop)
        self._stopped[key] = _Stop(
            max(stop.leader_epoch, known.leader_epoch), max(stop.order, known.order)
        )
        self._stopped.move_to_end(key)
        if len(self._stopped) > _REMEMBERED_STOPS:
            self._stopped.popitem(last=False)
