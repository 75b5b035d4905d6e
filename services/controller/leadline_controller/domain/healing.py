"""Self-healing: which brokers have failed, and where their replicas are recreated (KIP-46).

A broker is *failed* once its registration is gone. It is *dead* once it has been failed
for `failed.broker.interval.ms`, so that a restart moves nothing. The replicas of a dead
broker are recreated on other brokers in chunks, one chunk after another.

All decisions follow from ZooKeeper (assignments, failed brokers, tasks) and the time.
So a new controller makes the same decisions, and enabling self-healing later also
heals earlier failures.

Self-healing is suspended while the share of failed brokers exceeds a budget: then a
network or a rack has probably failed, and copying replicas would make things worse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Set
from itertools import islice, starmap
from typing import Any

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.tasks import TargetRow
from leadline_controller.domain.cluster import ClusterImage, PartitionsByTopic
from leadline_controller.domain.planning.replacements import replace_failed
from leadline_controller.domain.reassignment.requests import current_replicas

NEVER = -1
"""The interval that disables self-healing."""
PARTITIONS = "partitions"
"""The detail of a chunk with the partition numbers of each topic."""

Covered = Mapping[int, PartitionsByTopic]
"""The partitions of each failed broker that queued or running chunks contain."""


class FailureDiff(msgspec.Struct, frozen=True):
    """Brokers that have failed or returned since the failures were recorded (KIP-46, part 1)."""

    failed: tuple[int, ...]
    returned: tuple[int, ...]


def diff_failures(
    image: ClusterImage,
    failed: Collection[int],
    recorded: Collection[int],
    seen: Collection[int],
    returned: Collection[int],
    covered: Covered,
) -> FailureDiff:
    """Compare the live brokers with the `recorded` failures, of which `failed` are not queued.

    `seen` brokers have been live, and `returned` ones registered since the failures were recorded:
    such a broker may be gone again, and has then failed once more. Other brokers count as failed if
    they have replicas that no chunk covers.
    """
    live = image.live
    back = live.union(returned).intersection(recorded)
    missing = set(seen) - live
    for broker in image.hosts() - live:
        chunks = covered.get(broker, {})
        if any(n not in chunks.get(name, ()) for name, n in _numbers_on(image, broker)):
            missing.add(broker)
    return FailureDiff(tuple(sorted(missing - (set(failed) - back))), tuple(sorted(back)))


def brokers_down(image: ClusterImage, recorded: Collection[int]) -> frozenset[int]:
    """Return the brokers that count against the budget.

    A broker that is not live counts as long as it has replicas, or is `recorded` as failed.
    Whether its replicas are queued for healing makes no difference.
    """
    return image.hosts().union(recorded) - image.live


def is_over_budget(image: ClusterImage, recorded: Collection[int], percent: int) -> bool:
    """Tell whether more than `percent` percent of the brokers are down."""
    down = len(brokers_down(image, recorded))
    return 100 * down > percent * (down + len(image.live))


def lost_brokers(
    image: ClusterImage, due: Set[int], recorded: Set[int], healed: Set[int]
) -> Set[int]:
    """Return the brokers that take no replica over any more.

    These are failed brokers that are `due`, and those down that have chunks (`healed`). One without
    replicas has neither, but is `recorded` as dead.
    """
    return due | ((recorded | healed) - image.live)


def time_left(down_ms: int, interval_ms: int) -> int | None:
    """Return in how many ms a failed broker counts as dead, None if self-healing is disabled.

    It has been down for all of the interval, although `down_ms` may be too high by a part of one.
    """
    return None if interval_ms == NEVER else interval_ms + 1 - down_ms


def replicas_on(image: ClusterImage, broker: int) -> list[TopicPartition]:
    """Return the partitions that have a replica on a broker, without those still being added."""
    return list(starmap(TopicPartition, _numbers_on(image, broker)))


def uncovered_on(image: ClusterImage, broker: int, covered: Covered) -> list[TopicPartition]:
    """Return the partitions of a broker that no open chunk contains."""
    chunks = covered.get(broker, {})
    return [
        TopicPartition(name, number)
        for name, number in _numbers_on(image, broker)
        if number not in chunks.get(name, ())
    ]


def covered_by(chunks: Iterable[tuple[int, Mapping[str, Any]]]) -> Covered:
    """Return the partitions of all chunks, given their brokers and their details."""
    covered: dict[int, dict[str, set[int]]] = {}
    for broker, details in chunks:
        of_broker = covered.setdefault(broker, {})
        for topic, numbers in _rows_in(details).items():
            of_broker.setdefault(topic, set()).update(numbers)
    return covered


def _numbers_on(image: ClusterImage, broker: int) -> Iterator[tuple[str, int]]:
    """Iterate over topics and numbers; plain tuples, of which there may be very many."""
    for name, numbers in image.hosted_by(broker).items():
        topic = image.topics[name]
        if topic.deleting:
            continue
        adding = topic.assignment.adding
        for number in numbers:
            if number not in topic.pending_removal and broker not in adding.get(number, ()):
                yield name, number


def has_replicas(image: ClusterImage, broker: int) -> bool:
    """Tell whether any partition has a replica on a broker, besides those still being added."""
    return any(True for _ in _numbers_on(image, broker))


def healable_in(image: ClusterImage) -> Callable[[TopicPartition], bool]:
    """Return what tells whether a partition has a leader to copy from and a broker to copy to.

    It is valid as long as no broker comes or goes.
    """
    live, candidates = image.live, image.placement_candidates

    def is_healable(topic_partition: TopicPartition) -> bool:
        partition = image.partition(topic_partition)
        if partition is None or partition.state is None or partition.state.leader not in live:
            return False
        replicas = current_replicas(image, topic_partition) or ()
        return not candidates.issubset(replicas)

    return is_healable


def unqueued_wait_for(partitions: Collection[TopicPartition], busy: Container[object]) -> str:
    """Return what the partitions of a dead broker that no chunk contains wait for."""
    moving = sum(one in busy for one in partitions)
    if moving:
        return f"{moving} partitions are being reassigned: that has to end, or to be cancelled"
    left = len(partitions)
    return f"{left} partitions need a leader to copy from, and a broker without a replica"


def chunk_partitions(
    topic_partitions: Iterable[TopicPartition], size: int
) -> Iterator[list[TopicPartition]]:
    """Split the partitions of a dead broker into chunks of at most `size` (KIP-46, part 2)."""
    remaining = iter(topic_partitions)
    while chunk := list(islice(remaining, size)):
        yield chunk


def partitions_in(details: Mapping[str, Any]) -> frozenset[TopicPartition]:
    """Return the partitions of a chunk with these details; none if they are invalid."""
    rows = _rows_in(details)
    return frozenset(TopicPartition(t, number) for t, numbers in rows.items() for number in numbers)


def _rows_in(details: Mapping[str, Any]) -> Mapping[str, list[int]]:
    try:
        return msgspec.convert(details.get(PARTITIONS, {}), dict[str, list[int]])
    except msgspec.ValidationError:
        return {}


def targets_for(
    image: ClusterImage,
    topic_partitions: Iterable[TopicPartition],
    broker: int,
    busy: Container[object],
) -> tuple[TargetRow, ...]:
    """Return targets that replace a dead broker by rack and load (KIP-46, part 2).

    Skipped are partitions that need no healing any more (the replica has moved, or the
    topic was deleted), `busy` ones that are being reassigned, and unhealable ones.
    """
    assignments, is_healable = {}, healable_in(image)
    for topic_partition in topic_partitions:
        topic = image.topics.get(topic_partition.topic)
        replicas = current_replicas(image, topic_partition) or ()
        if topic is None or topic.deleting or broker not in replicas or topic_partition in busy:
            continue
        if is_healable(topic_partition):
            assignments[topic_partition] = replicas
    racks = {live.id: live.rack for live in image.brokers.values()}
    load = {
        host: sum(len(tuple(numbers)) for numbers in image.hosted_by(host).values())
        for host in image.hosts()
    }
    excluded = image.live - image.placement_candidates
    targets = replace_failed(assignments, {broker}, racks, load, excluded=excluded)
    return tuple(TargetRow(*t, replicas) for t, replicas in targets.items())
