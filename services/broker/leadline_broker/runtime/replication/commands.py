"""Obeying the controller: LeaderAndISR and StopReplica (seed 1 C, with rules R1, R9, R11, R12)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from leadline_broker.domain.effects import Effect
from leadline_broker.domain.replica import Role
from leadline_broker.domain.state import NOTHING_ORDERED, Order
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.ports import LogStore, ReplicaKey
from leadline_broker.runtime.replication.partition import Partition, PartitionSettings
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_client.errors import (
    BrokerFenced,
    FencedLeaderEpoch,
    InvalidRequest,
    LeadlineError,
    StaleControllerEpoch,
)
from leadline_common.clock import Clock
from leadline_common.rpc import (
    NO_ERROR,
    CommandResponse,
    LeaderAndIsrRequest,
    PartitionRow,
    StopReplicaRequest,
    StopRow,
    TopicRows,
)

logger = structlog.get_logger(__name__)

_REMEMBERED_STOPS: Final = 50_000
_SETTLING_CHECKS: Final = 50
_SETTLING_PAUSE_S: Final = 0.02


class ControllerCommands:
    """Carries out what the controller orders. Owned by the event loop.

    `in_background(work)` runs the slow rest of a deletion in some thread.
    """

    def __init__(
        self,
        *,
        broker_state: BrokerState,
        replicas: ReplicaManager,
        logs: LogStore,
        settings: TopicSettings,
        execute: Callable[[Partition, Sequence[Effect]], None],
        clock: Clock,
        in_background: Callable[[Callable[[], None]], None],
    ) -> None:
        self._broker_state = broker_state
        self._replicas = replicas
        self._logs = logs
        self._settings = settings
        self._execute = execute
        self._clock = clock
        self._in_background = in_background
        self._stopped: OrderedDict[ReplicaKey, int] = OrderedDict()
        self._latest = NOTHING_ORDERED

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch obeyed."""
        return self._logs.controller_epoch

    def obey(self, controller_epoch: int) -> None:
        """Remember a controller's epoch before doing as it says (rules R1, R11).

        Raises:
            StaleControllerEpoch: another controller has succeeded it.
            StorageFailed: it could not be remembered; it will send again.

        """
        known = self._logs.controller_epoch
        if controller_epoch < known:
            raise StaleControllerEpoch(f"controller epoch {known} is known", controller_epoch=known)
        if controller_epoch > known:
            self._logs.persist_controller_epoch(controller_epoch)

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> CommandResponse:
        """Take the roles that are granted (on_leader_and_isr_command).

        With `is_init` they are all the roles there are: other replicas are moved
        to stray, and the broker may serve from now on. One that was overtaken by
        a newer request on the way sets nothing aside: it cannot know what came since.

        Raises:
            InvalidRequest, StaleIncarnation, StaleControllerEpoch: see R1.
            BrokerFenced: this incarnation has not had its full grant yet.

        """
        self._broker_state.require_addressed(request.broker_id, request.incarnation)
        self.obey(request.controller_epoch)
        if not (self._broker_state.granted or request.is_init):
            raise BrokerFenced("the broker awaits its full grant")
        self._broker_state.learn(request.brokers)
        now = self._clock.monotonic_ms()
        order = (request.controller_epoch, request.sequence)
        codes = [self._grant_topic(topic, now, order) for topic in request.topics]
        overtaken, self._latest = order < self._latest, max(order, self._latest)
        if request.is_init:
            if not overtaken:
                self._set_aside_all_but(request.topics)
            if not self._broker_state.granted:
                logger.info("granted", replicas=len(self._replicas), cause=request.cause)
            self._broker_state.granted = True
        return CommandResponse(self.controller_epoch, self._broker_state.incarnation, codes)

    def _grant_topic(self, topic: TopicRows, now: int, order: Order) -> list[int]:
        settings = self._settings.of(topic.configs)
        return [self._grant(topic, row, settings, now, order) for row in topic.partitions]

    def _grant(
        self,
        topic: TopicRows,
        row: PartitionRow,
        settings: PartitionSettings,
        now: int,
        order: Order,
    ) -> int:
        """Carry out one row and return its code."""
        try:
            partition = self._started(topic, row, settings, order)
            if order >= self._latest:
                self._replicas.configure(partition, settings)
            code, effects = partition.replica.on_leader_and_isr(row, now, order)
            self._execute(partition, effects)
        except LeadlineError as error:
            logger.warning(
                "grant refused", topic=topic.topic, partition=row.partition, reason=error.message
            )
            return error.code
        if code == NO_ERROR:
            self._replicas.applied(partition)
        return code

    def _started(
        self, topic: TopicRows, row: PartitionRow, settings: PartitionSettings, order: Order
    ) -> Partition:
        """Return the replica that a row means, started where it is not here yet.

        What is here of an earlier partition of this number, or was set aside and is
        brought back, is deleted: all its records are of older epochs than this one
        began with, so its removal was ordered and carried out meanwhile (rule R12).
        """
        partition = self._replicas.find((topic.topic_id, row.partition))
        while partition is None or _is_outlived(partition, row):
            if partition is not None:
                logger.warning(
                    "replica of a removed partition deleted",
                    topic=topic.topic,
                    partition=row.partition,
                    first_epoch=row.first_epoch,
                )
                self._in_background(self._replicas.delete(partition))
            self._require_startable(topic, row, order)
            partition = self._replicas.create(topic.topic, topic.topic_id, row.partition, settings)
        return partition

    def _require_startable(self, topic: TopicRows, row: PartitionRow, order: Order) -> None:
        """Refuse a grant that is none, or that is older than the order to let the replica go.

        One that was overtaken on the way may be: what is left of a replica no longer
        knows which epochs it led. A replica that a reassignment removed may be brought
        back in the same epoch.
        """
        if self._broker_state.broker_id not in row.replicas:
            raise InvalidRequest("the grant does not assign the partition to this broker")
        if order < self._latest:
            raise FencedLeaderEpoch("the grant was overtaken by a newer one")
        stopped = self._stopped.get((topic.topic_id, row.partition))
        again = row.leader_epoch == stopped and self._broker_state.broker_id in row.adding
        if stopped is not None and row.leader_epoch <= stopped and not again:
            raise FencedLeaderEpoch("the replica was stopped after this grant")

    def _set_aside_all_but(self, topics: list[TopicRows]) -> None:
        named = {(topic.topic_id, row.partition) for topic in topics for row in topic.partitions}
        for partition in self._replicas.all():
            if partition.key not in named:
                logger.warning(
                    "replica set aside",
                    topic=partition.topic,
                    topic_id=partition.topic_id,
                    partition=partition.partition,
                )
                self._replicas.set_aside(partition)

    def stop_replica(self, request: StopReplicaRequest) -> CommandResponse:
        """Stop replicas, and delete their logs if told to (on_stop_replica_command).

        A replica that is not here, or is of another topic id, is success: there
        is nothing left to stop.

        Raises:
            InvalidRequest, StaleIncarnation, StaleControllerEpoch: see R1.

        """
        self._broker_state.require_addressed(request.broker_id, request.incarnation)
        self.obey(request.controller_epoch)
        codes = [
            [self._stop(topic.topic_id, row, request.delete) for row in topic.partitions]
            for topic in request.topics
        ]
        return CommandResponse(self.controller_epoch, self._broker_state.incarnation, codes)

    def _stop(self, topic_id: str, row: StopRow, delete: bool) -> int:
        key = (topic_id, row.partition)
        partition = self._replicas.find(key)
        if partition is not None and partition.replica.state.leader_epoch > row.leader_epoch:
            return FencedLeaderEpoch.code
        if delete:
            self._remember_stop(key, row.leader_epoch)
        if partition is None:
            return NO_ERROR
        try:
            if delete:
                self._in_background(self._replicas.delete(partition))
            elif partition.replica.role is Role.FOLLOWER and partition.replica.has_parked:
                self._fence_later(partition, row.leader_epoch, _SETTLING_CHECKS)
            else:
                self._replicas.fence(partition)
        except LeadlineError as error:
            return error.code
        return NO_ERROR

    def _fence_later(self, partition: Partition, leader_epoch: int, checks: int) -> None:
        """Stop a replica that led until just now when its produces have their answers.

        They come with the next fetches, or not at all: it waits for them a short time only.
        """
        replica = partition.replica
        if self._replicas.find(partition.key) is not partition:
            return
        if replica.state.leader_epoch > leader_epoch or replica.role is not Role.FOLLOWER:
            return
        if replica.has_parked and checks:
            loop = asyncio.get_running_loop()
            again = (partition, leader_epoch, checks - 1)
            loop.call_later(_SETTLING_PAUSE_S, self._fence_later, *again)
        else:
            self._replicas.fence(partition)

    def _remember_stop(self, key: ReplicaKey, leader_epoch: int) -> None:
        self._stopped[key] = max(leader_epoch, self._stopped.get(key, -1))
        self._stopped.move_to_end(key)
        if len(self._stopped) > _REMEMBERED_STOPS:
            self._stopped.popitem(last=False)


def _is_outlived(partition: Partition, row: PartitionRow) -> bool:
    """Tell whether a replica has records, none of which can be of the partition that is meant."""
    state = partition.replica.state
    newest = max(state.leader_epoch, state.log.epochs.latest)
    return newest < row.first_epoch and state.log.log_end_offset > 0
