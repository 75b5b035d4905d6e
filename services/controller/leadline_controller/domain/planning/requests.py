"""What a plan is asked for, what it is based on, and whether that still holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from leadline_client.errors import InvalidRequest, PolicyViolation, StalePlan
from leadline_client.wire import TopicPartition
from leadline_common.reassignments import PlanKind
from leadline_common.tasks import TargetRow
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.planning.plans import (
    Plan,
    plan_balance,
    plan_drain,
    plan_expand,
)
from leadline_controller.domain.topics import find_topic

MAX_PART_BYTES = 400_000
"""How large a part of a plan becomes one task, which is one ZooKeeper node of less than 1 MiB."""
_ROW_BYTES = 60


class PlanRequest(msgspec.Struct, frozen=True):
    """What somebody wants planned.

    `brokers` are those to balance over, to add, or to drain; empty means all live ones,
    or, to add, those without replicas. `excluded` ones get nothing. `topics` None
    means all of them; the others do not count.
    """

    kind: PlanKind
    brokers: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    topics: tuple[str, ...] | None = None


class Basis(msgspec.Struct, frozen=True):
    """What a plan follows from: topics by name with id and assignment, live brokers with racks."""

    topics: Mapping[str, tuple[str, Mapping[int, tuple[int, ...]]]]
    brokers: Mapping[int, str | None]


def plan_basis(image: ClusterImage, topics: tuple[str, ...] | None) -> Basis:
    """Return the present basis for a plan; it keeps no reference to what will change.

    Raises:
        UnknownTopic: one of the topics does not exist.

    """
    if topics is None:
        found = [image.topics[name] for name in sorted(image.topics)]
    else:
        found = [find_topic(image, name) for name in sorted(set(topics))]
    return Basis(
        topics={
            topic.name: (topic.topic_id, topic.assignment.partitions)
            for topic in found
            if topic.topic_id and not topic.deleting
        },
        brokers={broker: image.brokers[broker].rack for broker in sorted(image.brokers)},
    )


def make_plan(wanted: PlanRequest, basis: Basis) -> Plan:
    """Plan what is wanted.

    Raises:
        InvalidRequest: a drain names no broker.
        PolicyViolation: a broker is unknown, or there are too few.

    """
    assignments = {
        TopicPartition(topic, number): partitions[number]
        for topic, (_, partitions) in basis.topics.items()
        for number in sorted(partitions)
    }
    hosts = {broker for replicas in assignments.values() for broker in replicas}
    _check_brokers(wanted, basis, hosts)
    match wanted.kind:
        case PlanKind.BALANCE:
            left_out = basis.brokers.keys() - {*(wanted.brokers or basis.brokers)}
            return plan_balance(assignments, basis.brokers, excluded={*left_out, *wanted.excluded})
        case PlanKind.EXPAND:
            added = wanted.brokers or tuple(basis.brokers.keys() - hosts)
            return plan_expand(assignments, basis.brokers, added, excluded=wanted.excluded)
        case PlanKind.DRAIN:
            return plan_drain(assignments, basis.brokers, wanted.brokers, excluded=wanted.excluded)


def check_fresh(known: Basis, now: Basis) -> None:
    """Refuse a plan whose basis is gone.

    Raises:
        StalePlan: brokers came or went, or topics changed.

    """
    if known.brokers != now.brokers:
        changed = sorted(known.brokers.items() ^ now.brokers.items())
        ids = sorted({broker for broker, _ in changed})
        raise StalePlan(f"brokers {ids} came, went or changed racks since: plan again")
    if known.topics != now.topics:
        names = {*known.topics, *now.topics}
        changed_topics = [n for n in sorted(names) if known.topics.get(n) != now.topics.get(n)]
        raise StalePlan(
            f"{len(changed_topics)} topics changed since, as {changed_topics[0]!r}: plan again"
        )


def split_targets(targets: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[list[TargetRow]]:
    """Yield the rows of a plan in parts that fit into one task each."""
    part: list[TargetRow] = []
    size = 0
    for (topic, partition), replicas in targets.items():
        row_size = _ROW_BYTES + len(topic) + 11 * len(replicas)
        if part and size + row_size > MAX_PART_BYTES:
            yield part
            part, size = [], 0
        part.append(TargetRow(topic, partition, replicas))
        size += row_size
    if part:
        yield part


def _check_brokers(wanted: PlanRequest, basis: Basis, hosts: set[int]) -> None:
    live = basis.brokers.keys()
    if wanted.kind is PlanKind.DRAIN:
        if not wanted.brokers:
            raise InvalidRequest("body.brokers: name the brokers to drain")
        unknown = sorted({*wanted.brokers} - live - hosts)
    else:
        unknown = sorted({*wanted.brokers} - live)
    if unknown:
        raise PolicyViolation(f"brokers {unknown} are not live: start them, or leave them out")
    if wanted.kind is PlanKind.EXPAND and not wanted.brokers and not live - hosts:
        raise PolicyViolation(
            "every live broker has replicas: name the brokers that should get their share, "
            "or ask for a balance"
        )
    receiving = {*(wanted.brokers or live)} if wanted.kind is PlanKind.BALANCE else {*live}
    if not receiving - {*wanted.excluded}:
        raise PolicyViolation("no live broker is left that may get replicas")
