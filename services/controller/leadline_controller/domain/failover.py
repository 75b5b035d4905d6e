"""What to write when brokers, topics or controllers come and go (seed 1 A, B, D).

Every function here reads the image and returns decisions; nothing is changed.
A decision that would change nothing is not made: no write, no epoch bump.

Rules for each decision: the leader epoch rises by exactly one with every write
of the controller (seed A 3.3); the controller epoch is stamped; the leader, if
there is one, is in the ISR, and the ISR in the assignment; the write names the
version of the state that the decision was made from.

A broker that came back as a new incarnation first failed, then started (rule R9):
it leaves the ISR if another member stands, and leads again only under a new epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.znodes import BrokerRegistration, PartitionState
from leadline_controller.domain.cluster import (
    ClusterImage,
    PartitionImage,
    PartitionsByTopic,
    TopicImage,
)
from leadline_controller.domain.election import (
    Election,
    ElectionKind,
    ElectionReason,
    elect,
    eligible_after,
)

FIRST_EPOCH = 0
"""The leader epoch of a new partition."""

StaleFinder: TypeAlias = Callable[[PartitionImage], frozenset[int]]
"""Finds the live brokers that registered anew after a partition's state was written."""

_Roles: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Leader, ISR, eligible."""
_Case: TypeAlias = tuple[tuple[int, ...], _Roles | None, frozenset[int], bool, int]
"""Replicas, roles, stale brokers, may records be lost, min.insync.replicas."""
Outcome: TypeAlias = tuple[Election, tuple[int, ...]]
"""The election, and who is eligible after it."""
_NOBODY: frozenset[int] = frozenset()


class StateDecision(msgspec.Struct, frozen=True, gc=False):
    """Write `after` over `before` if the state node's version is `version`.

    A version of `cluster.NO_NODE` means to create the node.
    """

    topic: str
    partition: int
    before: PartitionState | None
    after: PartitionState
    version: int
    reason: ElectionReason


class BrokerChange(msgspec.Struct, frozen=True):
    """What differs between the brokers of the image and those that are live now.

    `bounced` brokers are live under a new incarnation. `granted` (bounced and
    started ones) await their full grant. `decisions` are to be written.
    """

    failed: tuple[int, ...]
    bounced: tuple[int, ...]
    started: tuple[int, ...]
    decisions: list[StateDecision]

    @property
    def granted(self) -> tuple[int, ...]:
        """The brokers that await their full grant."""
        return (*self.bounced, *self.started)


def on_broker_change(image: ClusterImage, live: Mapping[int, BrokerRegistration]) -> BrokerChange:
    """Decide what the failures and starts mean that lie between the image and `live`."""
    known = image.brokers
    failed = tuple(sorted(known.keys() - live.keys()))
    started = tuple(sorted(live.keys() - known.keys()))
    bounced = tuple(
        sorted(b for b in known.keys() & live.keys() if known[b].incarnation != live[b].incarnation)
    )
    touched = _hosted_by_any(image, (*failed, *bounced, *started))
    returned = frozenset(bounced)
    stopping = image.stopping - returned
    decisions = _decide(image, touched, live.keys(), lambda _: returned, stopping=stopping)
    return BrokerChange(failed, bounced, started, decisions)


def _hosted_by_any(image: ClusterImage, brokers: tuple[int, ...]) -> PartitionsByTopic:
    """Return the partitions that some of these brokers host, each once."""
    if len(brokers) == 1:
        return image.hosted_by(brokers[0])
    touched: dict[str, dict[int, None]] = {}
    for broker in brokers:
        for topic, numbers in image.hosted_by(broker).items():
            touched.setdefault(topic, {}).update(dict.fromkeys(numbers))
    return touched


def init_leaders(image: ClusterImage, names: Iterable[TopicPartition]) -> list[StateDecision]:
    """Give each partition that never had a leader its first one (seed 1 B).

    A partition with a state node is never initialised again, whatever the state
    says: that would elect from outside the ISR (F12).
    """
    without = (n for n in names if (p := image.partition(n)) is not None and p.state is None)
    return decide_all(image, without, image.live, none_stale)


def on_topic_change(image: ClusterImage, topics: Iterable[str]) -> list[StateDecision]:
    """Decide the first leaders of the topics that the image has just learned of."""
    found = (image.topics[name] for name in topics if name in image.topics)
    return init_leaders(
        image, [TopicPartition(topic.name, p) for topic in found for p in topic.partitions]
    )


def on_controller_failover(image: ClusterImage) -> list[StateDecision]:
    """Bring every partition into accord with the live brokers, from what was loaded alone.

    Nobody watched before, so incarnations cannot be compared. But every state that
    names a live broker was written after that broker registered, or it was meant
    for an earlier incarnation. The periodic reconciliation asks the same question.
    """
    everything = {topic.name: topic.partitions for topic in image.topics.values()}
    return _decide(image, everything, image.live, stale_finder(image))


def stale_finder(image: ClusterImage) -> StaleFinder:
    """Judge staleness by transaction ids: who registered after the state was written."""
    registered_at = image.registered_at
    newest = max(registered_at.values(), default=0)

    def find_stale(partition: PartitionImage) -> frozenset[int]:
        if partition.zxid >= newest:
            return _NOBODY
        return frozenset(broker for broker, at in registered_at.items() if at > partition.zxid)

    return find_stale


def none_stale(_partition: PartitionImage) -> frozenset[int]:
    """Judge that no broker is a new incarnation."""
    return _NOBODY


def non_preferred_leaders(image: ClusterImage, percentage: int) -> list[TopicPartition]:
    """Return the partitions to elect the preferred leader of, by broker out of balance.

    Left alone are brokers that should lead nothing now, partitions without a leader,
    and those that are being reassigned: the reassignment looks after their leaders.
    """
    preferring: dict[int, int] = {}
    astray: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        if topic.deleting or not topic.topic_id:
            continue
        for number, partition in topic.active_partitions.items():
            state = partition.state
            if state is None or not partition.replicas or is_being_reassigned(topic, number):
                continue
            preferred = partition.replicas[0]
            preferring[preferred] = preferring.get(preferred, 0) + 1
            if state.leader not in (preferred, NO_LEADER):
                astray.setdefault(preferred, []).append(TopicPartition(topic.name, number))
    return [
        name
        for broker, names in sorted(astray.items())
        if broker in image.leader_candidates and 100 * len(names) > percentage * preferring[broker]
        for name in names
    ]


def is_being_reassigned(topic: TopicImage, number: int) -> bool:
    """Tell whether a partition's replicas are on the move."""
    return number in topic.assignment.adding or number in topic.assignment.removing


def elect_preferred(image: ClusterImage, names: Iterable[TopicPartition]) -> list[StateDecision]:
    """Move leadership to the first assigned replica where it is live and in sync.

    A broker that registered after the state was written is not the member that it names
    (R9), and leaves the ISR: the new state will be later than its registration.
    """
    decisions: list[StateDecision] = []
    find_stale = stale_finder(image)
    for name in names:
        topic = image.topics.get(name.topic)
        partition = topic.active_partition(name.partition) if topic else None
        if topic is None or partition is None or partition.state is None or topic.deleting:
            continue
        state, stale = partition.state, find_stale(partition)
        chosen = elect(
            ElectionKind.PREFERRED,
            partition.replicas,
            tuple(broker for broker in state.isr if broker not in stale),
            image.leader_candidates - stale,
            leader=state.leader,
        )
        if chosen.leader != state.leader:
            outcome = (chosen, state.eligible)
            decisions.append(decision_for(topic, name.partition, outcome, image.controller_epoch))
    return decisions


def elect_unclean(image: ClusterImage, names: Iterable[TopicPartition]) -> list[StateDecision]:
    """Give leaderless partitions any live replica as leader: an operator accepts the loss."""
    leaderless = (
        n
        for n in names
        if (p := image.partition(n)) is not None and p.state and p.state.leader == NO_LEADER
    )
    return decide_all(image, leaderless, image.live, none_stale, unclean=True)


def possible_loss(decision: StateDecision) -> tuple[int, ...]:
    """Return whose committed records an election may give up: nobody's, unless it is unclean.

    They are the members of the ISR before it, unless the new leader is known to hold
    every committed record too (KIP-966).
    """
    before = decision.before
    if decision.reason is not ElectionReason.UNCLEAN or before is None:
        return ()
    return () if decision.after.leader in before.eligible else before.isr


def decide_all(
    image: ClusterImage,
    names: Iterable[TopicPartition],
    live: Collection[int],
    find_stale: StaleFinder,
    *,
    unclean: bool = False,
) -> list[StateDecision]:
    """Decide for each partition what its state must become, given who is live."""
    by_topic: dict[str, list[int]] = {}
    for name in names:
        by_topic.setdefault(name.topic, []).append(name.partition)
    return _decide(image, by_topic, live, find_stale, unclean=unclean)


def _decide(
    image: ClusterImage,
    names: PartitionsByTopic,
    live: Collection[int],
    find_stale: StaleFinder,
    *,
    unclean: bool = False,
    stopping: Collection[int] | None = None,
) -> list[StateDecision]:
    """Decide for many partitions: as they are alike by the thousand, each case is decided once."""
    decisions: list[StateDecision] = []
    outcomes: dict[_Case, Outcome | None] = {}
    stops = image.stopping if stopping is None else stopping
    for name, numbers in names.items():
        topic = image.topics.get(name)
        if topic is None or topic.deleting or not topic.topic_id:
            continue
        may_lose = unclean or image.unclean_allowed(topic)
        floor = image.min_insync_replicas(topic)
        for number in numbers:
            partition = topic.active_partition(number)
            if partition is None:
                continue
            state = partition.state
            roles = None if state is None else (state.leader, state.isr, state.eligible)
            case = (partition.replicas, roles, find_stale(partition), may_lose, floor)
            if case not in outcomes:
                outcomes[case] = _decide_case(case, live, stops)
            outcome = outcomes[case]
            if outcome is not None:
                decisions.append(decision_for(topic, number, outcome, image.controller_epoch))
    return decisions


def _decide_case(case: _Case, live: Collection[int], stopping: Collection[int]) -> Outcome | None:
    """Decide for all partitions of one case; None where their state stands as it is."""
    replicas, roles, stale, _, floor = case
    if roles is None:
        first = elect(ElectionKind.NEW_PARTITION, replicas, (), live, shutting_down=stopping)
        return None if first.leader == NO_LEADER else (first, ())
    leader, isr, eligible = roles
    if leader in live and not stale.intersection(isr) and all(b in live for b in isr):
        return None
    chosen = _choose(case, roles, live, stopping)
    unchanged = (chosen.leader, chosen.isr) == (leader, isr)
    # The same broker may lead again as a new incarnation: then only the epoch changes.
    if unchanged and (chosen.leader == NO_LEADER or chosen.reason is ElectionReason.UNCHANGED):
        return None
    return chosen, eligible_after(replicas, isr, eligible, chosen, floor)


def _choose(
    case: _Case, roles: _Roles, live: Collection[int], stopping: Collection[int]
) -> Election:
    replicas, _, stale, may_lose, _ = case
    leader, isr, eligible = roles
    standing = [broker for broker in replicas if broker in live and broker not in stale]
    kind = ElectionKind.REPLICA_OFFLINE if leader in standing else ElectionKind.OFFLINE
    chosen = elect(kind, replicas, isr, standing, leader=leader, shutting_down=stopping)
    if chosen.leader != NO_LEADER:
        return chosen
    # Nobody stands: whoever returned may lead under a new epoch, and only then an outsider.
    return elect(
        ElectionKind.OFFLINE,
        replicas,
        isr,
        live,
        unclean=may_lose,
        shutting_down=stopping,
        eligible=eligible,
    )


def decision_for(
    topic: TopicImage, number: int, outcome: Outcome, controller_epoch: int
) -> StateDecision:
    """Turn an outcome into what is to be written: the leader epoch rises by one.

    A partition that takes the place of a removed one begins above its last epoch.
    """
    chosen, eligible = outcome
    partition = topic.partitions[number]
    before = partition.state
    first = topic.assignment.first_epochs.get(number, FIRST_EPOCH)
    after = PartitionState(
        chosen.leader,
        first if before is None else before.leader_epoch + 1,
        chosen.isr,
        controller_epoch,
        eligible,
        None if before is None else before.extra,
    )
    return StateDecision(topic.name, number, before, after, partition.version, chosen.reason)
