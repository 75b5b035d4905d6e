"""Replacement of the replicas on failed or drained brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from leadline_client.errors import PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_controller.domain.planning.racks import RackRule


def choose_replacements(
    replicas: tuple[int, ...], failed: Collection[int], rule: RackRule, load: Mapping[int, int]
) -> tuple[int, ...]:
    """Replace each failed replica at its position in the list.

    The replacement is the least loaded receiver of the rule that hosts no replica of the
    partition and whose rack is below its cap.

    Raises:
        PolicyViolation: there are fewer brokers than replicas.

    """
    for broker in replicas:
        if broker in failed:
            chosen = choose_receiver(replicas, broker, rule, load)
            replicas = tuple(chosen if other == broker else other for other in replicas)
    return replicas


def choose_receiver(
    replicas: tuple[int, ...], donor: int, rule: RackRule, load: Mapping[int, int]
) -> int:
    """Return the broker that takes over a replica; ignore racks only if no broker is left.

    Raises:
        PolicyViolation: every receiver already has a replica of the partition.

    """
    free = [broker for broker in rule.receivers if broker not in replicas]
    if not free:
        raise PolicyViolation(
            f"the replica on broker {donor} cannot be moved: the partition has {len(replicas)} "
            f"replicas, and only brokers {list(rule.receivers)} would remain; "
            "add a broker, or lower the replication factor first"
        )
    allowed = [broker for broker in free if rule.allows(replicas, donor, broker)]
    return min(allowed or free, key=lambda broker: (load.get(broker, 0), broker))


def replace_failed(
    assignments: Mapping[TopicPartition, tuple[int, ...]],
    failed: Collection[int],
    racks: Mapping[int, str | None],
    load: Mapping[int, int],
    *,
    excluded: Collection[int] = (),
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replace the failed replicas of many partitions, spread over the brokers not `excluded`.

    `racks` maps the live brokers to their racks. `load` maps every broker to its number
    of replicas in the cluster.

    Raises:
        PolicyViolation: there are fewer live brokers than replicas.

    """
    rule = RackRule(racks, racks.keys() - {*failed, *excluded})
    now = Counter(load)
    targets = {}
    for topic_partition, replicas in assignments.items():
        target = choose_replacements(replicas, failed, rule, now)
        if target != replicas:
            targets[topic_partition] = target
            now.subtract(replicas)
            now.update(target)
    return targets
