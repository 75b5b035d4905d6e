"""Which brokers count as failed, when that calls for healing, and how (seed 2, KIP-46).

A broker is *failed* from the moment that its registration is gone. It is *dead* once
it has been so for `failed.broker.interval.ms`: a restart in between moves nothing.
The replicas of a dead broker are made anew on others in chunks, one after another.

Everything follows from what is in ZooKeeper (assignments, failed brokers, tasks) and
the time, so that a new controller comes to the same conclusions, and switching
healing on later heals what failed before.

The budget: when more brokers than a share of all are down, it is rather a network or
a rack that failed, and making replicas anew would only hurt; healing then waits.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.failed_brokers import FailedBroker
from leadline_common.tasks import TargetRow
from leadline_controller.domain.cluster import ClusterImage, PartitionsByTopic
from leadline_controller.domain.planning.replacements import replace_failed
from leadline_controller.domain.reassignment.requests import current_replicas

NEVER = -1
"""The interval that switches healing off."""

Covered = Mapping[int, Collection[TopicPartition]]
"""For each failed broker the partitions that queued or running chunks take care of."""


class FailureDiff(msgspec.Struct, frozen=True):
    """Whose state has changed: brokers to be noted as failed, and noted ones that are back."""

    failed: tuple[int, ...]
    returned: tuple[int, ...]


def diff_failures(
    image: ClusterImage, noted: Collection[int], lost: Collection[int], covered: Covered
) -> FailureDiff:
    """Compare the live brokers with those noted as failed.

    `lost` brokers have died since this controller began. Others are missed because
    replicas are assigned to them that no chunk takes care of.
    """
    live = image.live
    missing = set(lost) - live
    for broker in image.hosts() - live:
        if any(name not in covered.get(broker, ()) for name in replicas_on(image, broker)):
            missing.add(broker)
    failed = tuple(sorted(missing - set(noted)))
    return FailureDiff(failed, tuple(sorted(live.intersection(noted))))


def is_over_budget(image: ClusterImage, noted: Collection[int], percent: int) -> bool:
    """Tell whether more brokers are down than healing is meant for."""
    down = len(set(noted) - image.live)
    return 100 * down > percent * (down + len(image.live))


def due_at(failed: FailedBroker, interval_ms: int) -> int | None:
    """Return when a failed broker is dead (Unix ms), or None where healing is off."""
    return None if interval_ms == NEVER else failed.failure_timestamp + interval_ms


def replicas_on(image: ClusterImage, broker: int) -> list[TopicPartition]:
    """Return the partitions that a broker has a replica of, but for those it was to be given."""
    return [
        name
        for name in _names(image.hosted_by(broker))
        if not image.topics[name.topic].deleting and broker in (current_replicas(image, name) or ())
    ]


def is_healable(image: ClusterImage, name: TopicPartition) -> bool:
    """Tell whether a partition has a leader to copy from, and a broker to be placed on."""
    partition = image.partition(name)
    if partition is None or partition.state is None or partition.state.leader not in image.live:
        return False
    return bool(image.placement_candidates.difference(current_replicas(image, name) or ()))


def chunk_partitions(names: Iterable[TopicPartition], size: int) -> Iterator[list[TopicPartition]]:
    """Split what a dead broker had into chunks."""
    chunk: list[TopicPartition] = []
    for name in names:
        chunk.append(name)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def targets_for(
    image: ClusterImage, names: Iterable[TopicPartition], broker: int, busy: Container[object]
) -> tuple[TargetRow, ...]:
    """Return where the replicas of a dead broker go: racks respected, loads evened out.

    Left out is what needs no healing any more (the replica is elsewhere by now, the
    topic is gone), what is `busy` being reassigned, and what cannot be healed now.
    """
    assignments = {}
    for name in names:
        topic = image.topics.get(name.topic)
        replicas = current_replicas(image, name) or ()
        if topic is None or topic.deleting or broker not in replicas or name in busy:
            continue
        if is_healable(image, name):
            assignments[name] = replicas
    racks = {one.id: one.rack for one in image.brokers.values()}
    load = {one: sum(len(tuple(n)) for n in image.hosted_by(one).values()) for one in image.hosts()}
    excluded = image.live - image.placement_candidates
    targets = replace_failed(assignments, {broker}, racks, load, excluded=excluded)
    return tuple(TargetRow(*name, target) for name, target in targets.items())


def _names(by_topic: PartitionsByTopic) -> Iterator[TopicPartition]:
    for topic, numbers in by_topic.items():
        for number in numbers:
            yield TopicPartition(topic, number)
