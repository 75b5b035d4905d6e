"""Emptying a broker: its leaders first, then its replicas.

A broker that is drained keeps working. Leadership leaves it where another member of
the ISR can have it, and is not given back while the drain lasts; it may still be
elected where nobody else can lead. Its replicas go by a reassignment, as
`planning.plan_drain` plans it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from leadline_client.errors import PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_common.tasks import TargetRow
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.election import ElectionKind, elect
from leadline_controller.domain.failover import StateDecision, decision_for, stale_finder
from leadline_controller.domain.planning.plans import Assignments, Racks, plan_drain

Target = Callable[[TopicPartition], tuple[int, ...] | None]
"""Tells where a partition's replicas are going, or None where they stay."""


def move_leaders_off(
    image: ClusterImage, names: Iterable[TopicPartition], drained: frozenset[int]
) -> list[StateDecision]:
    """Give the leadership of drained brokers to other members of the ISR, which stays.

    But for those that registered after the state was written, as in `elect_preferred`.
    """
    decisions: list[StateDecision] = []
    find_stale = stale_finder(image)
    takers = image.electable - drained
    for name in names:
        topic = image.topics.get(name.topic)
        partition = topic.active_partition(name.partition) if topic and not topic.deleting else None
        if topic is None or partition is None or partition.state is None:
            continue
        state, stale = partition.state, find_stale(partition)
        if state.leader not in drained:
            continue
        chosen = elect(
            ElectionKind.REASSIGN,
            partition.replicas,
            tuple(broker for broker in state.isr if broker not in stale),
            takers - stale,
            leader=state.leader,
        )
        if chosen.leader != state.leader:
            outcome = (chosen, state.eligible)
            decisions.append(decision_for(topic, name.partition, outcome, image.controller_epoch))
    return decisions


class DrainPlanInput(msgspec.Struct, frozen=True):
    """What a drain is planned from: taken from the image at one moment, and immutable."""

    broker: int
    assignments: Assignments
    racks: Racks
    excluded: frozenset[int]

    def plan(self) -> tuple[TargetRow, ...]:
        """Return where replicas go, those of the broker first. May take a second: any thread.

        Raises:
            PolicyViolation: there would be fewer brokers than replicas of a partition.

        """
        plan = plan_drain(self.assignments, self.racks, (self.broker,), excluded=self.excluded)
        rows = [TargetRow(*name, replicas) for name, replicas in sorted(plan.targets.items())]
        return tuple(sorted(rows, key=lambda row: not self._is_hosted(row)))

    def _is_hosted(self, row: TargetRow) -> bool:
        return self.broker in self.assignments[TopicPartition(row.topic, row.partition)]


def drain_plan_input(image: ClusterImage, broker_id: int, target: Target) -> DrainPlanInput:
    """Return the question how to empty a broker; others that are emptied take nothing either.

    What is being reassigned already counts as if it had arrived.

    Raises:
        PolicyViolation: no other broker is live.

    """
    excluded = (image.emptying | image.stopping) - {broker_id}
    others = image.live - excluded - {broker_id}
    if not others:
        raise PolicyViolation(f"no other broker can take over what broker {broker_id} has")
    assignments = {
        name: target(name) or partition.replicas
        for name, partition in image.partitions()
        if not image.topics[name.topic].deleting
        and name.partition not in image.topics[name.topic].pending_removal
    }
    racks: Racks = {broker: image.brokers[broker].rack for broker in sorted(image.brokers)}
    if None in [racks[broker] for broker in others]:
        racks = dict.fromkeys(racks)
    return DrainPlanInput(broker_id, assignments, racks, excluded)
