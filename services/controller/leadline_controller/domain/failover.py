"""State decisions for failovers and elections (Replication V3, sections A, B and D).

The functions read the image and return decisions; they change nothing. A decision
that would not change the state is omitted: no write, no new epoch.

Every decision keeps four rules. The leader epoch rises by exactly one with every
write of the controller (Replication V3, section A, step 3.3). The state carries the
controller epoch. The leader, if there is one, is in the ISR, and the ISR is a subset
of the assignment. The write is conditional on the version that it was decided from.

A broker that returns as a new incarnation counts as failed and then started (rule
R9): it leaves the ISR if another member is live, and leads again only in a new epoch.
A broker that returns with another log directory leaves the ISR too, but does not lead
cleanly: it lacks the records (rule R17).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_common.isr import isr_floor
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
from leadline_controller.domain.memberships import (
    Brokers,
    epochs_after,
    is_same_directory,
    misplaced_finder,
    misplaced_members,
)

FIRST_EPOCH = 0
"""The leader epoch of a new partition."""

StaleFinder: TypeAlias = Callable[[PartitionImage], frozenset[int]]
"""Returns the live brokers that registered after a partition's state was written."""

_Roles: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Leader, ISR, eligible."""
_Case: TypeAlias = tuple[tuple[int, ...], _Roles | None, frozenset[int], frozenset[int], bool, int]
"""Replicas, roles, stale and misplaced brokers, whether unclean is allowed, the ISR floor."""
Outcome: TypeAlias = tuple[Election, tuple[int, ...]]
"""The election, and the eligible replicas after it."""
_NO_BROKERS: frozenset[int] = frozenset()


class StateDecision(msgspec.Struct, frozen=True, gc=False):
    """Replace `before` by `after` if the state node has the data version `version`.

    The version `cluster.NO_NODE` creates the node.
    """

    topic: str
    partition: int
    before: PartitionState | None
    after: PartitionState
    version: int
    reason: ElectionReason

    @property
    def former_leader(self) -> int:
        """The broker that led until now, NO_LEADER if none did."""
        return NO_LEADER if self.before is None else self.before.leader

    @property
    def changes_leader(self) -> bool:
        """Whether another broker, or none, leads from now on."""
        return self.former_leader != self.after.leader


class BrokerChange(msgspec.Struct, frozen=True):
    """The difference between the brokers of the image and the live ones, and what to write.

    `bounced` brokers are live as a new incarnation.
    """

    failed: tuple[int, ...]
    bounced: tuple[int, ...]
    started: tuple[int, ...]
    decisions: list[StateDecision]

    @property
    def granted(self) -> tuple[int, ...]:
        """The bounced and started brokers, which need a full grant."""
        return (*self.bounced, *self.started)


def on_broker_change(
    image: ClusterImage,
    live: Mapping[int, BrokerRegistration],
    topics: Collection[str] | None = None,
) -> BrokerChange:
    """Decide the states after broker failures and starts (Replication V3, section A).

    These are the differences between the brokers of the image and `live`. With `topics`, only
    the states of these topics are decided.
    """
    known = image.brokers
    failed = tuple(sorted(known.keys() - live.keys()))
    started = tuple(sorted(live.keys() - known.keys()))
    bounced = tuple(
        sorted(b for b in known.keys() & live.keys() if known[b].incarnation != live[b].incarnation)
    )
    touched = _hosted_by_any(image, (*failed, *bounced, *started), topics)
    returned = frozenset(bounced)
    stopping = image.stopping - returned
    decisions = _decide(image, touched, live, lambda _: returned, stopping=stopping)
    return BrokerChange(failed, bounced, started, decisions)


def leaders_first(decisions: Iterable[StateDecision]) -> list[StateDecision]:
    """Return decisions in the order in which to write them: changes of leaders first.

    Nobody can use a partition without a leader. One that only loses a follower serves readers
    meanwhile.
    """
    return sorted(decisions, key=lambda decision: not decision.changes_leader)


def _hosted_by_any(
    image: ClusterImage, brokers: tuple[int, ...], topics: Collection[str] | None
) -> PartitionsByTopic:
    """Return the partitions (of `topics`) that any of these brokers hosts, each once."""
    if len(brokers) == 1 and topics is None:
        return image.hosted_by(brokers[0])
    touched: dict[str, dict[int, None]] = {}
    for broker in brokers:
        hosted = image.hosted_by(broker)
        for topic in hosted if topics is None else topics:
            if topic in hosted:
                touched.setdefault(topic, {}).update(dict.fromkeys(hosted[topic]))
    return touched


def init_leaders(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition]
) -> list[StateDecision]:
    """Elect the first leader of partitions that never had one (Replication V3, section B).

    Partitions with a state node are skipped, whatever their state: an initial election
    could choose a leader from outside the ISR and lose committed records.
    """
    new = (t for t in topic_partitions if (p := image.partition(t)) is not None and p.state is None)
    return decide_all(image, new, none_stale)


def on_topic_change(image: ClusterImage, topics: Iterable[str]) -> list[StateDecision]:
    """Elect the first leaders of new topics (Replication V3, section B)."""
    found = (image.topics[name] for name in topics if name in image.topics)
    return init_leaders(
        image, [TopicPartition(topic.name, p) for topic in found for p in topic.partitions]
    )


def on_controller_failover(
    image: ClusterImage, topics: Iterable[str] | None = None
) -> list[StateDecision]:
    """Decide the states that do not match the live brokers (Replication V3, section D).

    A new controller does not know the previous incarnations, so it compares zxids: a
    state that was written before a broker registered names an earlier incarnation of it.
    The periodic reconciliation uses the same decision. With `topics`, only the states of these
    topics are decided.
    """
    names = image.topics if topics is None else (name for name in topics if name in image.topics)
    everything = {name: image.topics[name].partitions for name in names}
    return _decide(image, everything, image.brokers, stale_finder(image))


def stale_finder(image: ClusterImage) -> StaleFinder:
    """Return a function that finds stale brokers by comparing zxids."""
    registered_at = image.registered_at
    newest = max(registered_at.values(), default=0)

    def find_stale(partition: PartitionImage) -> frozenset[int]:
        if partition.zxid >= newest:
            return _NO_BROKERS
        return frozenset(broker for broker, at in registered_at.items() if at > partition.zxid)

    return find_stale


def none_stale(_partition: PartitionImage) -> frozenset[int]:
    """Treat no broker as a new incarnation."""
    return _NO_BROKERS


def elect_preferred(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition]
) -> list[StateDecision]:
    """Move leadership to the preferred leader where it is live and in sync."""
    return move_leaders(image, topic_partitions, ElectionKind.PREFERRED, image.leader_candidates)


def move_leaders(
    image: ClusterImage,
    topic_partitions: Iterable[TopicPartition],
    kind: ElectionKind,
    candidates: frozenset[int],
    leaders: frozenset[int] | None = None,
) -> list[StateDecision]:
    """Move leadership from any of `leaders` (None: any leader) to one of `candidates`.

    A broker that registered after the state was written is another incarnation than the
    member of the ISR (rule R9). It leaves the ISR, because the new state will be later
    than its registration and could no longer be recognized as stale; so do misplaced ones.
    """
    decisions: list[StateDecision] = []
    find_stale = stale_finder(image)
    for topic, number, partition, state in elected_partitions(image, topic_partitions):
        if leaders is not None and state.leader not in leaders:
            continue
        stale = find_stale(partition) | misplaced_members(image.brokers, topic, number, state)
        chosen = elect(
            kind,
            partition.replicas,
            tuple(broker for broker in state.isr if broker not in stale),
            candidates - stale,
            leader=state.leader,
        )
        if chosen.leader != state.leader:
            outcome = (chosen, state.eligible)
            decisions.append(decision_for(image, topic, number, outcome, image.brokers))
    return decisions


def elected_partitions(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition]
) -> Iterator[tuple[TopicImage, int, PartitionImage, PartitionState]]:
    """Yield those partitions that have a state, and are neither deleted nor pending removal."""
    for name, number in topic_partitions:
        topic = image.topics.get(name)
        partition = topic.active_partition(number) if topic and not topic.deleting else None
        if topic is not None and partition is not None and partition.state is not None:
            yield topic, number, partition, partition.state


def elect_unclean(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition]
) -> list[StateDecision]:
    """Elect any live replica of partitions without a leader; the operator accepts data loss."""
    leaderless = (
        t
        for t in topic_partitions
        if (p := image.partition(t)) is not None and p.state and p.state.leader == NO_LEADER
    )
    return decide_all(image, leaderless, none_stale, unclean=True)


def possible_loss(decision: StateDecision) -> tuple[int, ...]:
    """Return the replicas whose committed records an unclean election may discard.

    These are the members of the ISR before the election. It discards nothing if the new
    leader was eligible and so holds every committed record (KIP-966), unless it has lost its
    log directory since (rule R17).
    """
    before = decision.before
    if decision.reason is not ElectionReason.UNCLEAN or before is None:
        return ()
    after = decision.after
    holds_all = after.leader in before.eligible and is_same_directory(after.leader, before, after)
    return () if holds_all else before.isr


def decide_all(
    image: ClusterImage,
    topic_partitions: Iterable[TopicPartition],
    find_stale: StaleFinder,
    *,
    unclean: bool = False,
) -> list[StateDecision]:
    """Decide the new states of partitions, given the live brokers of the image."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in topic_partitions:
        by_topic.setdefault(topic, []).append(number)
    return _decide(image, by_topic, image.brokers, find_stale, unclean=unclean)


def _decide(
    image: ClusterImage,
    by_topic: PartitionsByTopic,
    live: Brokers,
    find_stale: StaleFinder,
    *,
    unclean: bool = False,
    stopping: Collection[int] | None = None,
) -> list[StateDecision]:
    """Decide for many partitions; equal cases, which are common, are decided once."""
    decisions: list[StateDecision] = []
    outcomes: dict[_Case, Outcome | None] = {}
    stopping = image.stopping if stopping is None else stopping
    find_misplaced = misplaced_finder(live)
    for name, numbers in by_topic.items():
        topic = image.topics.get(name)
        if topic is None or not topic.is_visible:
            continue
        unclean_allowed = unclean or image.unclean_allowed(topic)
        minimum, adding = image.min_insync_replicas(topic), topic.assignment.adding
        for number in numbers:
            partition = topic.active_partition(number)
            if partition is None:
                continue
            floor = isr_floor(minimum, partition.replicas, adding.get(number, ()))
            state = partition.state
            roles = None if state is None else (state.leader, state.isr, state.eligible)
            stale, misplaced = find_stale(partition), find_misplaced(topic, number, state)
            case = (partition.replicas, roles, stale, misplaced, unclean_allowed, floor)
            if case not in outcomes:
                outcomes[case] = _decide_case(case, live, stopping)
            outcome = outcomes[case]
            if outcome is not None:
                decisions.append(decision_for(image, topic, number, outcome, live))
    return decisions


def _decide_case(case: _Case, live: Collection[int], stopping: Collection[int]) -> Outcome | None:
    """Decide for all partitions of one case; None if their state stays as it is."""
    replicas, roles, stale, misplaced, _, floor = case
    if roles is None:
        first = elect(ElectionKind.NEW_PARTITION, replicas, (), live, shutting_down=stopping)
        return None if first.leader == NO_LEADER else (first, ())
    leader, isr, eligible = roles
    absent = stale | misplaced
    if leader in live and not absent.intersection(isr) and all(b in live for b in isr):
        return None
    chosen = _choose(case, roles, live, stopping)
    unchanged = (chosen.leader, chosen.isr) == (leader, isr)
    # If the same broker leads again as a new incarnation, only the epoch changes.
    if unchanged and (chosen.leader == NO_LEADER or chosen.reason is ElectionReason.UNCHANGED):
        return None
    return chosen, eligible_after(replicas, isr, eligible, chosen, floor)


def _choose(
    case: _Case, roles: _Roles, live: Collection[int], stopping: Collection[int]
) -> Election:
    replicas, _, stale, misplaced, unclean_allowed, _ = case
    leader, isr, eligible = roles
    present = [broker for broker in replicas if broker in live and broker not in stale]
    kind = ElectionKind.REPLICA_OFFLINE if leader in present else ElectionKind.OFFLINE
    chosen = elect(
        kind, replicas, isr, present, leader=leader, shutting_down=stopping, misplaced=misplaced
    )
    if chosen.leader != NO_LEADER:
        return chosen
    # No member is left: a returned member may lead in a new epoch, else an unclean election.
    return elect(
        ElectionKind.OFFLINE,
        replicas,
        isr,
        live,
        unclean=unclean_allowed,
        shutting_down=stopping,
        eligible=eligible,
        misplaced=misplaced,
    )


def decision_for(
    image: ClusterImage, topic: TopicImage, number: int, outcome: Outcome, live: Brokers
) -> StateDecision:
    """Return the decision to write an outcome, with the next leader epoch.

    A partition that was removed and added again starts above its last epoch.
    """
    chosen, eligible = outcome
    partition = topic.partitions[number]
    before = partition.state
    first = topic.assignment.first_epochs.get(number, FIRST_EPOCH)
    after = PartitionState(
        chosen.leader,
        first if before is None else before.leader_epoch + 1,
        chosen.isr,
        image.controller_epoch,
        eligible,
        None if before is None else before.extra,
        epochs_after(live, topic, number, chosen.leader, chosen.isr, eligible),
    )
    return StateDecision(topic.name, number, before, after, partition.version, chosen.reason)
