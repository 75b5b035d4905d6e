"""Which brokers take over the replicas of those that failed, or that are emptied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from leadline_client.errors import PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_controller.domain.planning.racks import RackRule


def choose_replacements(
    replicas: tuple[int, ...], failed: Collection[int], rule: RackRule, load: Mapping[int, int]
) -> tuple[int, ...]:
    """Return the replicas with each failed one replaced at its place in the list.

    The replacement is the least loaded receiver of the rule that has none of the
    partition, on a rack that has room for it.

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
    """Return who takes one replica over; racks give way only where no broker would be left.

    Raises:
        PolicyViolation: every receiver has a replica already.

    """
    free = [broker for broker in rule.receivers if broker not in replicas]
    if not free:
        raise PolicyViolation(
            f"the replica on broker {donor} has nowhere to go: a partition has {len(replicas)} "
            f"replicas, and the brokers {list(rule.receivers)} would remain; "
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
    """Replace the failed replicas of many partitions, spread over all brokers but `excluded` ones.

    `racks` maps the live brokers to their racks, `load` every broker to how many
    replicas it has in the whole cluster.

    Raises:
        PolicyViolation: there are fewer live brokers than replicas.

    """
    rule = RackRule(racks, racks.keys() - {*failed, *excluded})
    now = Counter(load)
    targets = {}
    for name, replicas in assignments.items():
        target = choose_replacements(replicas, failed, rule, now)
        if target != replicas:
            targets[name] = target
            now.subtract(replicas)
            now.update(target)
    return targets
