"""Requests for plans, the state that a plan is based on, and the check for stale plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from leadline_client.errors import InvalidRequest, PolicyViolation, StalePlan
from leadline_client.wire import TopicPartition
from leadline_common.reassignments import PlanKind
from leadline_common.tasks import TargetRow
from leadline_controller.domain.cluster import ClusterImage, TopicImage
from leadline_controller.domain.planning.plans import (
    Plan,
    plan_balance,
    plan_drain,
    plan_expand,
)
from leadline_controller.domain.topics import find_topic

MAX_PART_BYTES = 400_000
"""The largest part of a plan that becomes one task: a task is one znode of less than 1 MiB."""
_ROW_BYTES = 60


class PlanRequest(msgspec.Struct, frozen=True):
    """A request for a plan.

    `brokers` are those to balance over, to add, or to drain. Empty means all live brokers
    or, for an expansion, those without replicas. `excluded` brokers get no replicas.
    Only `topics` are planned and counted; None means all topics.
    """

    kind: PlanKind
    brokers: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    topics: tuple[str, ...] | None = None


class Basis(msgspec.Struct, frozen=True):
    """The input of a plan: topics by name with id and assignment, live brokers with racks."""

    topics: Mapping[str, tuple[str, Mapping[int, tuple[int, ...]]]]
    brokers: Mapping[int, str | None]


def plan_basis(image: ClusterImage, topics: tuple[str, ...] | None) -> Basis:
    """Return the current basis for a plan; it shares no mutable state with the image.

    Raises:
        UnknownTopic: a topic does not exist.

    """
    if topics is None:
        found = [image.topics[name] for name in sorted(image.topics)]
    else:
        found = [find_topic(image, name) for name in sorted(set(topics))]
    return Basis(
        topics={
            topic.name: (topic.topic_id, _active(topic)) for topic in found if topic.is_visible
        },
        brokers={broker: image.brokers[broker].rack for broker in sorted(image.brokers)},
    )


def _active(topic: TopicImage) -> Mapping[int, tuple[int, ...]]:
    """Return the replicas of a topic's partitions, without those that are being removed."""
    return {number: partition.replicas for number, partition in topic.active_partitions.items()}


def make_plan(wanted: PlanRequest, basis: Basis) -> Plan:
    """Compute the plan that a request asks for.

    Raises:
        InvalidRequest: a drain lists no broker.
        PolicyViolation: a broker is unknown, or there are too few brokers.

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
    """Check that the basis of a plan is still current.

    Raises:
        StalePlan: brokers joined or left, or topics changed.

    """
    if known.brokers != now.brokers:
        changed = sorted(known.brokers.items() ^ now.brokers.items())
        ids = sorted({broker for broker, _ in changed})
        raise StalePlan(f"brokers {ids} joined, left or changed racks since: make a new plan")
    if known.topics != now.topics:
        names = {*known.topics, *now.topics}
        changed_topics = [n for n in sorted(names) if known.topics.get(n) != now.topics.get(n)]
        raise StalePlan(
            f"{len(changed_topics)} topics changed since, e.g. {changed_topics[0]!r}: "
            "make a new plan"
        )


def split_targets(targets: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[list[TargetRow]]:
    """Split the targets of a plan into parts that fit into one task each."""
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
            raise InvalidRequest("body.brokers: list the brokers to drain")
        unknown = sorted({*wanted.brokers} - live - hosts)
    else:
        unknown = sorted({*wanted.brokers} - live)
    if unknown:
        raise PolicyViolation(f"brokers {unknown} are not live: start them, or omit them")
    if wanted.kind is PlanKind.EXPAND and not wanted.brokers and not live - hosts:
        raise PolicyViolation(
            "every live broker has replicas: list the brokers that should get a share, "
            "or request a balance plan"
        )
    receiving = {*(wanted.brokers or live)} if wanted.kind is PlanKind.BALANCE else {*live}
    if not receiving - {*wanted.excluded}:
        raise PolicyViolation("no live broker may get replicas")
