"""Controlled shutdown: what moves off a broker before it stops, and what its stop would risk.

A controlled shutdown moves the broker's leaderships to other members of the ISR, and
removes the broker from each ISR that keeps min.insync.replicas members without it.
Otherwise the broker stays in the ISR until it stops: leaving earlier would only make
acks=all fail for longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.elections import StopRisk
from leadline_controller.domain.cluster import ClusterImage, PartitionImage
from leadline_controller.domain.election import ElectionKind, elect, eligible_after
from leadline_controller.domain.failover import (
    StateDecision,
    decision_for,
    elected_partitions,
    stale_finder,
)
from leadline_controller.domain.memberships import misplaced_finder, misplaced_members


def decide_controlled_shutdown(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition]
) -> list[StateDecision]:
    """Move leadership and ISR membership off the stopping brokers.

    A partition that no other broker can lead keeps its leader. It stays available until
    that broker has stopped, and the first member of its ISR to return leads it again.
    """
    decisions: list[StateDecision] = []
    find_stale = stale_finder(image)
    for topic, number, partition, state in elected_partitions(image, topic_partitions):
        if state.leader == NO_LEADER or image.stopping.isdisjoint(state.isr):
            continue
        floor = image.isr_floor(topic, number)
        chosen = elect(
            ElectionKind.CONTROLLED_SHUTDOWN,
            partition.replicas,
            state.isr,
            image.live
            - find_stale(partition)
            - misplaced_members(image.brokers, topic, number, state),
            leader=state.leader,
            shutting_down=image.stopping,
            floor=floor,
        )
        if (chosen.leader, chosen.isr) != (state.leader, state.isr):
            eligible = eligible_after(partition.replicas, state.isr, state.eligible, chosen, floor)
            outcome = (chosen, eligible)
            decisions.append(decision_for(image, topic, number, outcome, image.brokers))
    return decisions


def partitions_hosted_by(image: ClusterImage, broker_id: int) -> list[TopicPartition]:
    """Return the partitions that have a replica on a broker."""
    return [
        TopicPartition(topic, number)
        for topic, numbers in image.hosted_by(broker_id).items()
        for number in numbers
    ]


def partitions_led_by(
    image: ClusterImage, broker_id: int, among: Iterable[TopicPartition] | None = None
) -> list[TopicPartition]:
    """Return the partitions, or those `among` them, that a broker leads.

    Partitions that are being deleted or removed are left out.
    """
    hosted = partitions_hosted_by(image, broker_id) if among is None else among
    return [
        topic_partition
        for topic_partition, partition in _active_partitions(image, hosted)
        if partition.state is not None and partition.state.leader == broker_id
    ]


class StopRisks(msgspec.Struct, frozen=True):
    """The partitions at risk, each listed under its worst risk."""

    partitions: dict[StopRisk, list[TopicPartition]]

    @property
    def can_stop(self) -> bool:
        """Whether no partition is at risk."""
        return not self.partitions

    def plus(self, other: StopRisks) -> StopRisks:
        """Return these risks and those of other partitions."""
        both = {
            risk: self.partitions.get(risk, []) + other.partitions.get(risk, [])
            for risk in StopRisk
        }
        return StopRisks({risk: found for risk, found in both.items() if found})


def assess_stop_risks(
    image: ClusterImage, broker_id: int, hosted: Iterable[TopicPartition]
) -> StopRisks:
    """Return what would happen to partitions that a broker hosts if it stopped now.

    Other stopping brokers count as stopped. A partition is not at risk if the broker is
    not in its ISR, or has lost the log directory of its membership (rule R17).
    """
    found: dict[StopRisk, list[TopicPartition]] = {}
    others, find_misplaced = image.electable - {broker_id}, misplaced_finder(image.brokers)
    for topic_partition, partition in _active_partitions(image, hosted):
        topic, number = image.topics[topic_partition.topic], topic_partition.partition
        misplaced = find_misplaced(topic, number, partition.state)
        if broker_id in misplaced:
            continue
        left = others - misplaced if misplaced else others
        risk = _risk(partition, broker_id, left, image.isr_floor(topic, number))
        if risk is not None:
            found.setdefault(risk, []).append(topic_partition)
    return StopRisks({risk: found[risk] for risk in StopRisk if risk in found})


def _risk(
    partition: PartitionImage, broker_id: int, others: frozenset[int], floor: int
) -> StopRisk | None:
    state = partition.state
    if state is None or broker_id not in state.isr:
        return None
    left = [broker for broker in state.isr if broker in others]
    if state.leader == NO_LEADER:
        return StopRisk.OFFLINE
    if not left:
        return StopRisk.NO_SUCCESSOR
    if len(left) < floor:
        return StopRisk.BELOW_MIN_INSYNC
    if len(left) + 1 < len(partition.replicas):
        return StopRisk.UNDER_REPLICATED
    return None


def _active_partitions(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for topic_partition in topic_partitions:
        topic = image.topics.get(topic_partition.topic)
        partition = topic.active_partition(topic_partition.partition) if topic else None
        if topic is not None and partition is not None and not topic.deleting:
            yield topic_partition, partition
