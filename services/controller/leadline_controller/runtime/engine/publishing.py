"""Publishing partition states and audit entries: into ZooKeeper first, then to the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline_client.wire import TopicPartition
from leadline_common.cause import current_cause
from leadline_common.clock import Clock
from leadline_common.znodes import AuditEntry, TopicAssignment
from leadline_controller.domain.cluster import Change, ClusterImage, StateSet, TopicSet
from leadline_controller.domain.failover import (
    StateDecision,
    decide_all,
    leaders_first,
    stale_finder,
)
from leadline_controller.domain.history import NOTICED_AT
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.event_queue import EventQueue
from leadline_controller.runtime.engine.state_writer import Decide, StateWriter


@dataclass(eq=False)
class AuditLog:
    """Builds audit entries about the event being handled, and writes those without a change.

    `actor` is the controller: the actor where no other is named.
    """

    writer: StateWriter
    clock: Clock
    actor: str

    def entry(
        self,
        kind: str,
        resource: Mapping[str, Any],
        *,
        actor: str = "",
        outcome: str = "done",
        reason: str = "",
        before: Any = None,
        after: Any = None,
        zk: Mapping[str, int] | None = None,
    ) -> AuditEntry:
        """Return an audit entry, to be written together with the change that it is about."""
        return AuditEntry(
            time=self.clock.wall_ms(),
            cause=current_cause(),
            actor=actor or self.actor,
            kind=kind,
            outcome=outcome,
            reason=reason,
            resource=resource,
            before=before,
            after=after,
            zk=zk or {},
        )

    async def record(self, entry: AuditEntry) -> None:
        """Write an audit entry alone."""
        await self.writer.commit([], entry)


@dataclass(eq=False)
class StatePublisher:
    """Writes decisions into ZooKeeper and sends them to the brokers."""

    image: ClusterImage
    queue: EventQueue
    writer: StateWriter
    dispatcher: BrokerDispatcher
    audit: AuditLog

    def decide(self, topic_partitions: Sequence[TopicPartition]) -> list[StateDecision]:
        """Decide for partitions from the image alone, as the reconciliation does."""
        image = self.image
        return decide_all(image, topic_partitions, stale_finder(image))

    async def write(
        self,
        decisions: list[StateDecision],
        kind: str,
        reason: str = "",
        *,
        actor: str = "",
        decide: Decide | None = None,
    ) -> list[StateDecision]:
        """Publish decisions, and return those that were written.

        `kind`, `reason` and `actor` go into the audit entries. `decide` decides again for
        partitions whose state was not the expected one. Changes of leaders are written first.
        Roles are sent as they are written, metadata when all are.

        Raises:
            TermEnded: another controller was elected, or the lease has run out.
            StaleImage: the live brokers are not those that were decided with.

        """
        if not decisions:
            return []
        noticed_at = self.queue.noticed_at
        after = {NOTICED_AT: noticed_at} if noticed_at else None
        entry = self.audit.entry(kind, {}, actor=actor, reason=reason, after=after)
        with self.dispatcher.metadata_held():
            return await self.writer.write(leaders_first(decisions), entry, decide or self.decide)

    def apply_topics(self, changes: Sequence[Change]) -> None:
        """Apply topics that were read, and send the roles of partitions whose replicas changed.

        The answer to the write may have been lost, and a role may have been sent since with the
        earlier replicas. A leader that counts a removed one would acknowledge nothing any more.
        """
        topics = self.image.topics
        names = {change.topic for change in changes if isinstance(change, TopicSet)}
        before = {name: topics[name].assignment for name in names & topics.keys()}
        applied = self.image.apply(changes)
        moved = [
            StateSet(name, number, partition.state, partition.version, partition.zxid)
            for name, earlier in before.items()
            for number, partition in topics[name].partitions.items()
            if partition.state is not None
            and _replicas(earlier, number) != _replicas(topics[name].assignment, number)
        ]
        if moved:
            self.dispatcher.send_roles(moved)
        elif applied:
            self.dispatcher.send_metadata()

    def apply_read(self, states: Sequence[StateSet]) -> None:
        """Apply states that were read, and send those with a new leader epoch to the replicas."""
        epochs = {}
        for change in states:
            topic_partition = TopicPartition(change.topic, change.partition)
            partition = self.image.partition(topic_partition)
            if partition is not None and partition.state is not None:
                epochs[topic_partition] = partition.state.leader_epoch
        applied = [one for one in self.image.apply(states) if isinstance(one, StateSet)]
        elected = [
            change
            for change in applied
            if epochs.get(TopicPartition(change.topic, change.partition))
            != change.state.leader_epoch
        ]
        if elected:
            self.dispatcher.send_roles(elected)
        elif applied:
            self.dispatcher.send_metadata()


def _replicas(assignment: TopicAssignment, number: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the replicas of a partition, and those of them that are being added."""
    return assignment.partitions.get(number, ()), assignment.adding.get(number, ())
