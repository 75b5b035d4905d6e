"""Draining a broker: its leaders move first, then its replicas.

A draining broker keeps running. Its leaderships move to other members of the ISR and
do not return while the drain lasts, but it may still be elected if no other replica
can lead. Its replicas move by a reassignment that `planning.plans.plan_drain` plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from leadline_client.errors import PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_common.tasks import TargetRow
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.election import ElectionKind
from leadline_controller.domain.failover import StateDecision, move_leaders
from leadline_controller.domain.planning.plans import Assignments, Racks, plan_drain
from leadline_controller.domain.planning.racks import RackRule
from leadline_controller.domain.planning.replacements import choose_receiver

Target = Callable[[TopicPartition], tuple[int, ...] | None]
"""Returns the target of a partition's reassignment, or None if it is not being reassigned."""


def move_leaders_off(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition], drained: frozenset[int]
) -> list[StateDecision]:
    """Move the leadership of drained brokers to other members of the ISR."""
    return move_leaders(
        image, topic_partitions, ElectionKind.REASSIGN, image.electable - drained, drained
    )


class DrainPlanInput(msgspec.Struct, frozen=True):
    """An immutable copy of everything that a drain is planned from."""

    broker: int
    assignments: Assignments
    racks: Racks
    excluded: frozenset[int]

    def plan(self) -> tuple[TargetRow, ...]:
        """Return the targets, those of the broker's partitions first.

        Planning a large cluster takes about a second; this method may run in any thread.

        Raises:
            PolicyViolation: there would be fewer brokers than replicas of a partition.

        """
        plan = plan_drain(self.assignments, self.racks, (self.broker,), excluded=self.excluded)
        rows = [TargetRow(*target, replicas) for target, replicas in sorted(plan.targets.items())]
        return tuple(sorted(rows, key=lambda row: not self._is_hosted(row)))

    def check(self) -> None:
        """Refuse a drain for which there can be no plan; cheap enough for the event queue.

        Raises:
            PolicyViolation: there would be fewer brokers than replicas of a partition.

        """
        rule = RackRule(self.racks, self.racks.keys() - {*self.excluded, self.broker})
        receivers = frozenset(rule.receivers)
        for replicas in self.assignments.values():
            if self.broker in replicas and receivers.issubset(replicas):
                choose_receiver(replicas, self.broker, rule, {})

    def _is_hosted(self, row: TargetRow) -> bool:
        return self.broker in self.assignments[TopicPartition(row.topic, row.partition)]


def drain_plan_input(image: ClusterImage, broker_id: int, target: Target) -> DrainPlanInput:
    """Return the input for planning the drain of a broker.

    Other emptying and stopping brokers get no replicas. Partitions that are being
    reassigned count as if they had reached their targets.

    Raises:
        PolicyViolation: no other broker is live.

    """
    excluded = (image.emptying | image.stopping) - {broker_id}
    others = image.live - excluded - {broker_id}
    if not others:
        raise PolicyViolation(f"no other broker can take over the replicas of broker {broker_id}")
    assignments = {
        topic_partition: target(topic_partition) or partition.replicas
        for topic_partition, partition in image.partitions()
        if not image.topics[topic_partition.topic].deleting
        and topic_partition.partition not in image.topics[topic_partition.topic].pending_removal
    }
    racks: Racks = {broker: image.brokers[broker].rack for broker in sorted(image.brokers)}
    if None in [racks[broker] for broker in others]:
        racks = dict.fromkeys(racks)
    return DrainPlanInput(broker_id, assignments, racks, excluded)
