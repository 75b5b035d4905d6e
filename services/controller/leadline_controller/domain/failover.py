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

from leadline_client.wire import NO_LEADER
from leadline_common.znodes import BrokerRegistration, PartitionState
from leadline_controller.domain.cluster import (
    ClusterImage,
    PartitionImage,
    TopicImage,
    TopicPartition,
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

IsStale: TypeAlias = Callable[[int, PartitionImage], bool]
"""Tells whether a live broker registered anew after a partition's state was written."""


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
    touched: dict[TopicPartition, None] = {}
    for broker in (*failed, *bounced, *started):
        touched.update(dict.fromkeys(image.hosted_by(broker)))
    decisions = decide_all(image, touched, live.keys(), lambda broker, _: broker in bounced)
    return BrokerChange(failed, bounced, started, decisions)


def init_leaders(image: ClusterImage, names: Iterable[TopicPartition]) -> list[StateDecision]:
    """Give each partition that never had a leader its first one (seed 1 B).

    A partition with a state node is never initialised again, whatever the state
    says: that would elect from outside the ISR (F12).
    """
    without = (n for n in names if (p := image.partition(n)) is not None and p.state is None)
    return decide_all(image, without, image.live, never_stale)


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
    return decide_all(
        image, (name for name, _ in image.partitions()), image.live, registered_since(image)
    )


def registered_since(image: ClusterImage) -> IsStale:
    """Judge staleness by transaction ids: did the broker register after the state was written."""
    registered_at = image.registered_at

    def is_stale(broker: int, partition: PartitionImage) -> bool:
        return registered_at.get(broker, 0) > partition.zxid

    return is_stale


def never_stale(_broker: int, _partition: PartitionImage) -> bool:
    """Judge that no broker is a new incarnation."""
    return False


def elect_preferred(image: ClusterImage, names: Iterable[TopicPartition]) -> list[StateDecision]:
    """Move leadership to the first assigned replica where it is live and in sync."""
    decisions: list[StateDecision] = []
    for name in names:
        topic, partition = _known(image, name)
        if topic is None or partition is None or partition.state is None or topic.deleting:
            continue
        state = partition.state
        chosen = elect(
            ElectionKind.PREFERRED,
            partition.replicas,
            state.isr,
            image.live,
            leader=state.leader,
        )
        _keep(decisions, image, topic, name, partition, chosen)
    return decisions


def elect_unclean(image: ClusterImage, names: Iterable[TopicPartition]) -> list[StateDecision]:
    """Give leaderless partitions any live replica as leader: an operator accepts the loss."""
    leaderless = (
        n
        for n in names
        if (p := image.partition(n)) is not None and p.state and p.state.leader == NO_LEADER
    )
    return decide_all(image, leaderless, image.live, never_stale, unclean=True)


def decide_all(
    image: ClusterImage,
    names: Iterable[TopicPartition],
    live: Collection[int],
    is_stale: IsStale,
    *,
    unclean: bool = False,
) -> list[StateDecision]:
    """Decide for each partition what its state must become, given who is live."""
    decisions: list[StateDecision] = []
    for name in names:
        topic, partition = _known(image, name)
        if topic is None or partition is None or topic.deleting or not topic.topic_id:
            continue
        may_lose = unclean or image.unclean_allowed(topic)
        chosen = _choose(partition, live, is_stale, may_lose)
        if chosen is not None:
            _keep(decisions, image, topic, name, partition, chosen)
    return decisions


def told_about(image: ClusterImage, decision: StateDecision) -> tuple[int, ...]:
    """Return the live brokers that hold, or held, a role in the partition."""
    partition = image.partition(TopicPartition(decision.topic, decision.partition))
    replicas = partition.replicas if partition else ()
    return tuple(broker for broker in replicas if broker in image.brokers)


def _known(
    image: ClusterImage, name: TopicPartition
) -> tuple[TopicImage | None, PartitionImage | None]:
    topic = image.topics.get(name.topic)
    return topic, topic.partitions.get(name.partition) if topic else None


def _choose(
    partition: PartitionImage, live: Collection[int], is_stale: IsStale, may_lose: bool
) -> Election | None:
    """Choose for one partition; None where its state stands as it is."""
    state, replicas = partition.state, partition.replicas
    if state is None:
        return elect(ElectionKind.NEW_PARTITION, replicas, (), live)
    roles = state.isr if state.leader == NO_LEADER else (*state.isr, state.leader)
    stale = {broker for broker in roles if broker in live and is_stale(broker, partition)}
    if state.leader != NO_LEADER and not stale and all(broker in live for broker in roles):
        return None
    standing = [broker for broker in replicas if broker in live and broker not in stale]
    kind = ElectionKind.REPLICA_OFFLINE if state.leader in standing else ElectionKind.OFFLINE
    chosen = elect(kind, replicas, state.isr, standing, leader=state.leader)
    if chosen.leader != NO_LEADER:
        return chosen
    # Nobody stands: whoever returned may lead under a new epoch, and only then an outsider.
    return elect(
        ElectionKind.OFFLINE,
        replicas,
        state.isr,
        live,
        unclean=may_lose,
        eligible=state.eligible,
    )


def _keep(
    decisions: list[StateDecision],
    image: ClusterImage,
    topic: TopicImage,
    name: TopicPartition,
    partition: PartitionImage,
    chosen: Election,
) -> None:
    """Turn an election into a decision, unless there is nothing to do."""
    state = partition.state
    if state is None:
        if chosen.leader == NO_LEADER:
            return
        after = PartitionState(chosen.leader, FIRST_EPOCH, chosen.isr, image.controller_epoch)
    else:
        if chosen.leader == state.leader and chosen.isr == state.isr and not _returned(chosen):
            return
        after = PartitionState(
            leader=chosen.leader,
            leader_epoch=state.leader_epoch + 1,
            isr=chosen.isr,
            controller_epoch=image.controller_epoch,
            eligible=eligible_after(
                partition.replicas,
                state.isr,
                state.eligible,
                chosen,
                image.min_insync_replicas(topic),
            ),
            extra=state.extra,
        )
    decisions.append(
        StateDecision(
            *name, before=state, after=after, version=partition.version, reason=chosen.reason
        )
    )


def _returned(chosen: Election) -> bool:
    """Tell whether the same broker leads again as a new incarnation: only the epoch changes."""
    return chosen.leader != NO_LEADER and chosen.reason is not ElectionReason.UNCHANGED
