"""Memberships of brokers that are registered with another log directory (rule R17).

A member of an ISR, or an eligible replica, is *misplaced* while its broker is live with another
directory epoch than the one that its membership recorded: the log directory was replaced, or this
replica's log in it was lost. It may not have the records that it acknowledged, so it is no clean
candidate. It counts again if the broker returns with the directory of the membership.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.directories import (
    FIRST_DIRECTORY_EPOCH,
    DirectoryEpochs,
    kept_epochs,
    membership_epoch,
)
from leadline_common.znodes import BrokerRegistration, PartitionState
from leadline_controller.domain.cluster import ClusterImage, TopicImage

Brokers = Mapping[int, BrokerRegistration]
MisplacedFinder = Callable[[TopicImage, int, PartitionState | None], frozenset[int]]
_NO_BROKERS: frozenset[int] = frozenset()


def misplaced_members(
    brokers: Brokers, topic: TopicImage, number: int, state: PartitionState | None
) -> frozenset[int]:
    """Return the misplaced members among the live `brokers`."""
    if state is None:
        return _NO_BROKERS
    recorded, topic_id = state.directory_epochs, topic.topic_id
    found = [
        member
        for member in (*state.isr, *state.eligible)
        if (broker := brokers.get(member)) is not None
        and broker.epoch_of(topic_id, number) != membership_epoch(recorded, member)
    ]
    return frozenset(found) if found else _NO_BROKERS


def misplaced_finder(brokers: Brokers) -> MisplacedFinder:
    """Return `misplaced_members` of these brokers, at no cost if no directory was ever replaced."""
    replaced = any(
        broker.directory_epoch != FIRST_DIRECTORY_EPOCH or broker.replica_epochs
        for broker in brokers.values()
    )

    def find(topic: TopicImage, number: int, state: PartitionState | None) -> frozenset[int]:
        if state is None or not (replaced or state.directory_epochs):
            return _NO_BROKERS
        return misplaced_members(brokers, topic, number, state)

    return find


def is_same_directory(broker: int, before: PartitionState, after: PartitionState) -> bool:
    """Return whether two states bind a broker to the same log directory."""
    known = membership_epoch(before.directory_epochs, broker)
    return known == membership_epoch(after.directory_epochs, broker)


def epochs_after(
    brokers: Brokers,
    topic: TopicImage,
    number: int,
    leader: int,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
) -> DirectoryEpochs | None:
    """Return the epochs to record with a new state; members that stay keep theirs.

    A clean leader is on the directory of its membership. An unclean one, and every member of a
    new partition, begins on the one that it has.
    """
    before = topic.partitions[number].state
    recorded = None if before is None else before.directory_epochs
    begins = isr if before is None else (leader,)
    joined = {
        broker: brokers[broker].epoch_of(topic.topic_id, number)
        for broker in begins
        if broker != NO_LEADER and broker in brokers
    }
    return kept_epochs(recorded, (*isr, *eligible), joined)


def misplaced_on(
    image: ClusterImage, brokers: Brokers, broker_ids: Iterable[int]
) -> dict[int, list[TopicPartition]]:
    """Return the partitions in which each of these brokers is a misplaced member, if any."""
    found: dict[int, list[TopicPartition]] = {}
    for broker_id in broker_ids:
        broker = brokers.get(broker_id)
        if broker is None or not image.hosted_by(broker_id):
            continue
        find_misplaced = misplaced_finder({broker_id: broker})
        partitions = [
            TopicPartition(topic.name, number)
            for name, numbers in image.hosted_by(broker_id).items()
            if (topic := image.topics[name]).is_visible
            for number in numbers
            if (partition := topic.active_partition(number)) is not None
            and find_misplaced(topic, number, partition.state)
        ]
        if partitions:
            found[broker_id] = partitions
    return found
