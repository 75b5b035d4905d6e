"""The controller's image of the cluster: the nodes of ZooKeeper and the versions they were read at.

Invariant: the image holds only what was read from, or successfully written to,
ZooKeeper. The same `apply` serves live writes and loading after a failover, so
that a new controller rebuilds the image from ZooKeeper alone.

Three sets do not come from nodes of their own. Brokers announce that they are
`stopping`; the tasks decide which brokers are `draining` (should lead nothing) and
`emptying` (should get no replicas).

The image keeps each node's data version, because a later write names it, and the
transaction id (zxid) of its last write, because zxids order any two writes.

`version` is the version of the metadata. It rises with every visible change: to the
highest zxid applied or, when an earlier transaction arrives late, by one. So two
different documents never share a version. `zxid` is the highest zxid applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.isr import isr_floor
from leadline_common.znodes import BrokerRegistration, PartitionState, TopicAssignment
from leadline_controller.domain.changes import (
    NO_NODE,
    BrokerDown,
    BrokerUp,
    Change,
    ConfigsSet,
    DeletionPending,
    RemovalPending,
    StateSet,
    TopicGone,
    TopicSet,
)

__all__ = [
    "NO_NODE",
    "BrokerDown",
    "BrokerUp",
    "Change",
    "ClusterImage",
    "ClusterPolicy",
    "ConfigsSet",
    "DeletionPending",
    "PartitionImage",
    "PartitionsByTopic",
    "RemovalPending",
    "StateSet",
    "TopicGone",
    "TopicImage",
    "TopicSet",
]

_MIN_INSYNC = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"


PartitionsByTopic: TypeAlias = Mapping[str, Collection[int]]
"""Partition numbers by topic; unlike a set of TopicPartition, cheap for thousands of partitions."""


class ClusterPolicy(msgspec.Struct, frozen=True):
    """The cluster's defaults of the topic configs that decisions depend on."""

    min_insync_replicas: int = 2
    unclean_leader_election: bool = False


class PartitionImage(msgspec.Struct, frozen=True, gc=False):
    """One partition: its assigned replicas (AR) in order of preference, and its state node.

    `version` and `zxid` are those of the state node. Until the first leader is elected,
    `state` is None and `version` is `NO_NODE`.
    """

    replicas: tuple[int, ...]
    state: PartitionState | None = None
    version: int = NO_NODE
    zxid: int = 0


class TopicImage(msgspec.Struct, eq=False):
    """One topic.

    `deleting` is true once the topic has a tombstone. `changed_at` is the image version of
    the last change. Partitions in `pending_removal` are hidden from clients and brokers,
    like the partitions of a topic that is being deleted. `version` and `zxid` belong to the
    topic node, `configs_version` to its config node; `config_problems` maps the names of
    invalid configs to the reasons.
    """

    name: str
    assignment: TopicAssignment
    version: int = NO_NODE
    zxid: int = 0
    configs: dict[str, str] = {}
    configs_version: int = NO_NODE
    config_problems: Mapping[str, str] = {}
    partitions: dict[int, PartitionImage] = {}
    deleting: bool = False
    pending_removal: frozenset[int] = frozenset()
    changed_at: int = 0

    @property
    def topic_id(self) -> str:
        """The id that distinguishes topics of the same name; empty until it is assigned."""
        return self.assignment.topic_id

    @property
    def is_visible(self) -> bool:
        """Whether brokers and clients may see the topic: it has an id and is not being deleted."""
        return bool(self.topic_id) and not self.deleting

    def is_being_reassigned(self, number: int) -> bool:
        """Tell whether a reassignment step of the partition is in progress."""
        return number in self.assignment.adding or number in self.assignment.removing

    @property
    def active_partitions(self) -> Mapping[int, PartitionImage]:
        """The partitions that are not pending removal, by number."""
        if not self.pending_removal:
            return self.partitions
        return {n: found for n, found in self.partitions.items() if n not in self.pending_removal}

    def active_partition(self, number: int) -> PartitionImage | None:
        """Return a partition, or None if it does not exist or is pending removal."""
        return None if number in self.pending_removal else self.partitions.get(number)


_BROKER_CHANGES = (BrokerUp, BrokerDown)


class ClusterImage:
    """Brokers, topics and partitions; dictionaries keep the order of arrival.

    `registered_at` maps live brokers to the zxid of their registration, `deleted_at` maps
    deleted topics to the image version of their deletion.
    """

    def __init__(self, policy: ClusterPolicy | None = None, controller_epoch: int = 0) -> None:
        self.policy = policy or ClusterPolicy()
        self.controller_epoch = controller_epoch
        self.version = 0
        self.zxid = 0
        self.brokers: dict[int, BrokerRegistration] = {}
        self.registered_at: dict[int, int] = {}
        self.topics: dict[str, TopicImage] = {}
        self.deleted_at: dict[str, int] = {}
        self.brokers_changed_at = 0
        self.stopping: set[int] = set()
        self.draining: frozenset[int] = frozenset()
        self.emptying: frozenset[int] = frozenset()
        self._hosted: dict[int, dict[str, list[int]]] = {}
        self._listeners: list[Callable[[Sequence[Change]], None]] = []

    # -- reading ---------------------------------------------------------------

    @property
    def live(self) -> frozenset[int]:
        """The ids of the live brokers."""
        return frozenset(self.brokers)

    @property
    def electable(self) -> frozenset[int]:
        """The ids of the live brokers that are not stopping: only these may get a new role."""
        return frozenset(self.brokers.keys() - self.stopping)

    @property
    def leader_candidates(self) -> frozenset[int]:
        """The ids of the brokers that leadership may be moved to: electable and not draining."""
        return self.electable - self.draining

    @property
    def placement_candidates(self) -> frozenset[int]:
        """The ids of the brokers that automatic placement may use: electable and not emptying."""
        return self.electable - self.emptying

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        """Return a partition, or None if it does not exist."""
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic else None

    def partitions(
        self, topics: Iterable[str] | None = None
    ) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """Yield every partition (of those of these topics that exist), topic by topic."""
        names = self.topics if topics is None else topics
        for topic in (self.topics[name] for name in names if name in self.topics):
            for number, partition in topic.partitions.items():
                yield TopicPartition(topic.name, number), partition

    def topic_parts(self, size: int = 2_000) -> Iterator[list[str]]:
        """Yield all topics, a few at a time: as many as have about `size` partitions together."""
        part: list[str] = []
        weight = 0
        for name, topic in list(self.topics.items()):
            part.append(name)
            weight += max(1, len(topic.partitions))
            if weight >= size:
                yield part
                part, weight = [], 0
        if part:
            yield part

    def hosted_by(self, broker_id: int) -> PartitionsByTopic:
        """Return the partitions assigned to a broker, from an index: a failover needs no scan."""
        return self._hosted.get(broker_id, {})

    def hosts(self) -> frozenset[int]:
        """Return the live brokers and those that have replicas assigned."""
        return self.live.union(broker for broker, hosted in self._hosted.items() if hosted)

    def min_insync_replicas(self, topic: TopicImage) -> int:
        """Return `min.insync.replicas` of a topic."""
        own = topic.configs.get(_MIN_INSYNC)
        return int(own) if own is not None else self.policy.min_insync_replicas

    def isr_floor(self, topic: TopicImage, number: int) -> int:
        """Return the ISR size below which a partition's leader commits nothing."""
        adding = topic.assignment.adding.get(number, ())
        return isr_floor(self.min_insync_replicas(topic), topic.partitions[number].replicas, adding)

    def unclean_allowed(self, topic: TopicImage) -> bool:
        """Tell whether `unclean.leader.election.enable` holds for a topic."""
        own = topic.configs.get(_UNCLEAN)
        return own == "true" if own is not None else self.policy.unclean_leader_election

    # -- changing --------------------------------------------------------------

    def apply(self, changes: Iterable[Change]) -> list[Change]:
        """Apply changes in order; return those that changed the image.

        A change that the image contains already, or that is older than the image, is ignored.
        """
        effective: list[Change] = []
        zxid = self.zxid
        for change in changes:
            if self._set_state(change) if isinstance(change, StateSet) else self._set(change):
                effective.append(change)
            zxid = max(zxid, change.zxid)
        self.zxid = zxid
        if effective:
            self.version = max(self.version + 1, zxid)
            self._stamp(effective)
            self._publish(effective)
        return effective

    def subscribe(self, listener: Callable[[Sequence[Change]], None]) -> None:
        """Call `listener` with the changes that `apply` has applied.

        It is called without changes when `stopping`, `draining` or `emptying` change.
        """
        self._listeners.append(listener)

    def _publish(self, changes: Sequence[Change]) -> None:
        for listener in self._listeners:
            listener(changes)

    def mark_stopping(self, broker_id: int) -> None:
        """Mark a live broker as stopping until its next incarnation."""
        if broker_id in self.brokers:
            self.stopping.add(broker_id)
            self._publish(())

    def set_draining(self, draining: frozenset[int], emptying: frozenset[int]) -> None:
        """Note which brokers should lead nothing, and which should get no replicas."""
        if (draining, emptying) != (self.draining, self.emptying):
            self.draining, self.emptying = draining, emptying
            self._publish(())

    def advance_version(self, version: int) -> None:
        """Raise the version above one that an earlier controller has published (rule R15)."""
        if version > self.version:
            self.version = version + 1

    def _stamp(self, changes: list[Change]) -> None:
        """Record the image version at which each topic changed or was deleted."""
        if any(isinstance(change, _BROKER_CHANGES) for change in changes):
            self.brokers_changed_at = self.version
        for name in {c.topic for c in changes if not isinstance(c, _BROKER_CHANGES)}:
            if name in self.topics:
                self.topics[name].changed_at = self.version
            else:
                self.deleted_at[name] = self.version

    def _set(self, change: Change) -> bool:
        match change:
            case BrokerUp() | BrokerDown():
                return self._set_broker(change)
            case TopicSet():
                return self._set_topic(change)
            case ConfigsSet():
                return self._set_configs(change)
            case DeletionPending() | RemovalPending():
                return self._set_pending(change)
            case TopicGone():
                return self._forget_topic(change)
            case StateSet():
                return self._set_state(change)

    def _set_state(self, change: StateSet) -> bool:
        topic = self.topics.get(change.topic)
        known = topic.partitions.get(change.partition) if topic else None
        if topic is None or known is None or change.version <= known.version:
            return False
        topic.partitions[change.partition] = PartitionImage(
            known.replicas, change.state, change.version, change.zxid
        )
        return True

    def _set_topic(self, change: TopicSet) -> bool:
        topic = self.topics.get(change.topic)
        if topic is not None and topic.topic_id not in ("", change.assignment.topic_id):
            self._forget_topic(TopicGone(change.topic))  # recreated under the same name
            topic = None
        if topic is None:
            topic = TopicImage(change.topic, change.assignment)
            self.topics[change.topic] = topic
            self.deleted_at.pop(change.topic, None)
        topic.zxid = change.zxid
        if change.version <= topic.version:
            return False
        self._assign(topic, change.assignment)
        topic.version = change.version
        return True

    def _assign(self, topic: TopicImage, assignment: TopicAssignment) -> None:
        """Replace a topic's replica assignment and update the index by broker."""
        self._unlist(topic)
        before, topic.partitions = topic.partitions, {}
        topic.assignment = assignment
        for number in sorted(assignment.partitions):
            replicas = tuple(assignment.partitions[number])
            known = before.get(number)
            topic.partitions[number] = (
                PartitionImage(replicas)
                if known is None
                else PartitionImage(replicas, known.state, known.version, known.zxid)
            )
            for broker in replicas:
                hosted = self._hosted.setdefault(broker, {})
                hosted.setdefault(topic.name, []).append(number)
        topic.pending_removal = topic.pending_removal.intersection(topic.partitions)

    def _unlist(self, topic: TopicImage) -> None:
        """Remove a topic from the index by broker."""
        for broker in {b for partition in topic.partitions.values() for b in partition.replicas}:
            self._hosted[broker].pop(topic.name, None)

    def _set_configs(self, change: ConfigsSet) -> bool:
        topic = self.topics.get(change.topic)
        if topic is None:
            return False
        topic.configs_version, topic.config_problems = change.version, change.problems
        # An invalid value does not reset a config: its previous value stays in force.
        kept = topic.configs if "" in change.problems else change.problems.keys()
        configs = {name: topic.configs[name] for name in kept if name in topic.configs}
        configs |= change.configs
        if topic.configs == configs:
            return False
        topic.configs = configs
        return True

    def _set_broker(self, change: BrokerUp | BrokerDown) -> bool:
        if isinstance(change, BrokerDown):
            self.stopping.discard(change.broker_id)
            self.registered_at.pop(change.broker_id, None)
            return self.brokers.pop(change.broker_id, None) is not None
        broker = change.registration
        known = self.brokers.get(broker.id)
        if known is not None and known.incarnation != broker.incarnation:
            self.stopping.discard(broker.id)
        self.brokers[broker.id] = broker
        self.registered_at[broker.id] = change.zxid
        return known != broker

    def _set_pending(self, change: DeletionPending | RemovalPending) -> bool:
        topic = self.topics.get(change.topic)
        if topic is None:
            return False
        known = topic.deleting, topic.pending_removal
        if isinstance(change, DeletionPending):
            topic.deleting = True
        else:
            topic.pending_removal |= change.partitions & topic.partitions.keys()
        return (topic.deleting, topic.pending_removal) != known

    def _forget_topic(self, change: TopicGone) -> bool:
        topic = self.topics.pop(change.topic, None)
        if topic is None:
            return False
        self._unlist(topic)
        return True
