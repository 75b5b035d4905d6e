"""Before a broker stops: what is moved off it, and whether it may stop at all.

A controlled shutdown moves every leadership of the broker to another member of the
ISR, and takes the broker out of each ISR that stays large enough without it. Where
acks=all needs it, it stays in sync until it is really gone: leaving early would
refuse writes for longer, and make nothing safer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.elections import StopRisk
from leadline_controller.domain.cluster import ClusterImage, PartitionImage
from leadline_controller.domain.election import ElectionKind, elect, eligible_after
from leadline_controller.domain.failover import StateDecision, decision_for, stale_finder


def decide_controlled_shutdown(
    image: ClusterImage, names: Iterable[TopicPartition]
) -> list[StateDecision]:
    """Move leadership and places in the ISR off the brokers that are about to stop.

    A partition that nobody else can lead keeps its leader: it is available until
    that broker is gone, and the first of its ISR to return leads it again.
    """
    decisions: list[StateDecision] = []
    find_stale = stale_finder(image)
    for name in names:
        topic = image.topics.get(name.topic)
        partition = topic.active_partition(name.partition) if topic and not topic.deleting else None
        if topic is None or partition is None or partition.state is None:
            continue
        state = partition.state
        if state.leader == NO_LEADER or image.stopping.isdisjoint(state.isr):
            continue
        floor = image.min_insync_replicas(topic)
        chosen = elect(
            ElectionKind.CONTROLLED_SHUTDOWN,
            partition.replicas,
            state.isr,
            image.live - find_stale(partition),
            leader=state.leader,
            shutting_down=image.stopping,
            floor=min(floor, len(partition.replicas)),
        )
        if (chosen.leader, chosen.isr) != (state.leader, state.isr):
            eligible = eligible_after(partition.replicas, state.isr, state.eligible, chosen, floor)
            outcome = (chosen, eligible)
            decisions.append(decision_for(topic, name.partition, outcome, image.controller_epoch))
    return decisions


def partitions_hosted_by(image: ClusterImage, broker_id: int) -> list[TopicPartition]:
    """Return the partitions that a broker holds a replica of."""
    return [
        TopicPartition(topic, number)
        for topic, numbers in image.hosted_by(broker_id).items()
        for number in numbers
    ]


def partitions_led_by(image: ClusterImage, broker_id: int) -> list[TopicPartition]:
    """Return the partitions that a broker leads, but for those that are about to go."""
    return [
        name
        for name, partition in _standing(image, broker_id)
        if partition.state is not None and partition.state.leader == broker_id
    ]


class StopRisks(msgspec.Struct, frozen=True):
    """The partitions at risk, each under the worst that would happen to it."""

    partitions: dict[StopRisk, list[TopicPartition]]

    @property
    def can_stop(self) -> bool:
        """Whether nothing is at risk."""
        return not self.partitions


def assess_stop_risks(image: ClusterImage, broker_id: int) -> StopRisks:
    """Find out what would happen to each partition if a broker stopped now.

    Brokers that are about to stop count as gone. A partition whose ISR the broker
    is not in loses nothing by it.
    """
    found: dict[StopRisk, list[TopicPartition]] = {}
    others = image.electable - {broker_id}
    for name, partition in _standing(image, broker_id):
        floor = image.min_insync_replicas(image.topics[name.topic])
        risk = _risk(partition, broker_id, others, floor)
        if risk is not None:
            found.setdefault(risk, []).append(name)
    return StopRisks({risk: found[risk] for risk in StopRisk if risk in found})


def _risk(
    partition: PartitionImage, broker_id: int, others: frozenset[int], min_insync_replicas: int
) -> StopRisk | None:
    state = partition.state
    if state is None or broker_id not in state.isr:
        return None
    left = [broker for broker in state.isr if broker in others]
    if state.leader == NO_LEADER:
        return StopRisk.OFFLINE
    if not left:
        return StopRisk.NO_SUCCESSOR
    if len(left) < min(min_insync_replicas, len(partition.replicas)):
        return StopRisk.BELOW_MIN_INSYNC
    if len(left) + 1 < len(partition.replicas):
        return StopRisk.UNDER_REPLICATED
    return None


def _standing(
    image: ClusterImage, broker_id: int
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for name in partitions_hosted_by(image, broker_id):
        topic = image.topics[name.topic]
        partition = topic.active_partition(name.partition)
        if partition is not None and not topic.deleting:
            yield name, partition
