"""Requests to brokers, built from the image when they are sent, so with the latest state.

Bodies are encoded here: the rows of a topic are the same for every broker, so they
are encoded once per change and copied into each request.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import msgspec

from leadline_client.wire import NO_LEADER
from leadline_common.rpc import (
    BrokerRow,
    ControllerRow,
    LeaderAndIsrRequest,
    PartitionRow,
    StopReplicaRequest,
    StopRow,
    StopTopic,
    TopicRows,
)
from leadline_common.slices import in_turns
from leadline_common.znodes import BrokerRegistration, PartitionState
from leadline_controller.domain.cluster import (
    ClusterImage,
    PartitionImage,
    PartitionsByTopic,
    TopicImage,
)
from leadline_controller.domain.failover import FIRST_EPOCH

_NEVER_LED = PartitionState(NO_LEADER, -1, (), 0)


class BrokerRequest(msgspec.Struct, frozen=True):
    """An encoded request, and the partitions that the codes of its answer are about."""

    body: bytes
    partitions: list[tuple[str, list[int]]]


class _UpdateMetadata(msgspec.Struct, frozen=True):
    """`rpc.UpdateMetadataRequest`, with topics that are encoded already."""

    cluster_id: str
    controller: ControllerRow
    broker_id: int
    incarnation: int
    version: int
    base_version: int
    full: bool
    cause: str
    brokers: list[BrokerRow]
    topics: list[msgspec.Raw]
    deleted: list[str]


class RequestBuilder:
    """Builds the requests of one leadership term."""

    def __init__(
        self, image: ClusterImage, cluster_id: str, controller: ControllerRow, ack_timeout_ms: int
    ) -> None:
        self._image = image
        self._cluster_id = cluster_id
        self._controller = controller
        self._ack_timeout_ms = ack_timeout_ms
        self._encode = msgspec.json.Encoder().encode
        self._sequence = count(1)
        self._fragments: dict[str, tuple[int, str, msgspec.Raw]] = {}

    def leader_and_isr(
        self, broker: BrokerRegistration, partitions: PartitionsByTopic, cause: str
    ) -> BrokerRequest:
        """Build LeaderAndISR for some partitions."""
        topics = list(self._roles(broker.id, partitions))
        return self._leader_and_isr(broker, topics, cause, is_init=False)

    async def all_roles(self, broker: BrokerRegistration) -> list[TopicRows]:
        """Return every role of a broker, built in turns.

        A role that changes meanwhile may be as it was before.
        """
        topics: list[TopicRows] = []
        hosted = self._image.hosted_by(broker.id)
        async for names in in_turns(self._image.topic_parts()):
            topics += self._roles(broker.id, {n: hosted[n] for n in names if n in hosted})
        return topics

    def grant(
        self,
        broker: BrokerRegistration,
        topics: list[TopicRows],
        changed: PartitionsByTopic,
        cause: str,
    ) -> BrokerRequest:
        """Build the full grant of these roles (rule R9; with isInit), those `changed` as they are.

        A replica that it does not name becomes a stray; one that is gone and named is created.
        """
        rows = [kept for topic in topics if (kept := _without(topic, changed)) is not None]
        rows += self._roles(broker.id, changed)
        return self._leader_and_isr(broker, rows, cause, is_init=True)

    def _roles(self, broker_id: int, partitions: PartitionsByTopic) -> Iterator[TopicRows]:
        for name, numbers in partitions.items():
            topic = self._image.topics.get(name)
            if topic is None or not topic.is_visible:
                continue
            rows = [row for n in numbers if (row := self._role(topic, n, broker_id)) is not None]
            if rows:
                yield TopicRows(topic.name, topic.topic_id, topic.configs, rows)

    def _leader_and_isr(
        self, broker: BrokerRegistration, topics: list[TopicRows], cause: str, *, is_init: bool
    ) -> BrokerRequest:
        request = LeaderAndIsrRequest(
            controller_id=self._controller.id,
            controller_epoch=self._controller.epoch,
            broker_id=broker.id,
            incarnation=broker.incarnation,
            is_init=is_init,
            ack_timeout_ms=self._ack_timeout_ms,
            cause=cause,
            brokers=broker_rows(self._image),
            topics=topics,
            sequence=next(self._sequence),
        )
        return BrokerRequest(self._encode(request), _numbers(topics))

    def stop(
        self, broker: BrokerRegistration, partitions: PartitionsByTopic, cause: str, *, delete: bool
    ) -> BrokerRequest:
        """Build StopReplica for the replicas that, by the image, a broker should not have.

        With `delete` (rule R12): replicas of a topic under deletion, of partitions being
        removed, and of partitions that are no longer assigned to the broker. Without:
        replicas outside the ISR, of a broker that is shutting down.
        """
        topics = []
        must_stop = _is_to_delete if delete else _is_to_halt
        for name, numbers in partitions.items():
            topic = self._image.topics.get(name)
            if topic is None:
                continue
            rows = [
                StopRow(number, _epoch(topic.partitions.get(number)))
                for number in numbers
                if must_stop(topic, number, broker.id)
            ]
            if rows:
                topics.append(StopTopic(name, topic.topic_id, rows))
        request = StopReplicaRequest(
            controller_id=self._controller.id,
            controller_epoch=self._controller.epoch,
            broker_id=broker.id,
            incarnation=broker.incarnation,
            ack_timeout_ms=self._ack_timeout_ms,
            cause=cause,
            delete=delete,
            topics=topics,
            sequence=next(self._sequence),
        )
        return BrokerRequest(self._encode(request), _numbers(topics))

    async def encode_topics(self, acked_version: int | None) -> None:
        """Encode in turns what the next `metadata` holds: 100,000 partitions take 0.2 s."""
        async for names in in_turns(self._image.topic_parts()):
            for name in names:
                topic = self._image.topics.get(name)
                if topic is not None and self._is_due(topic, acked_version):
                    self._fragment(topic)

    @staticmethod
    def _is_due(topic: TopicImage, acked_version: int | None) -> bool:
        base = -1 if acked_version is None else acked_version
        return topic.changed_at > base and topic.is_visible

    def metadata(
        self, broker: BrokerRegistration, acked_version: int | None, cause: str
    ) -> tuple[bytes, int]:
        """Build UpdateMetadata: the changes since `acked_version`, or everything if that is None.

        Returns the body and the metadata version that the broker has after it.
        """
        image = self._image
        base = acked_version if acked_version is not None else -1
        topics = [
            self._fragment(topic)
            for topic in image.topics.values()
            if self._is_due(topic, acked_version)
        ]
        request = _UpdateMetadata(
            cluster_id=self._cluster_id,
            controller=self._controller,
            broker_id=broker.id,
            incarnation=broker.incarnation,
            version=image.version,
            base_version=max(base, 0),
            full=acked_version is None,
            cause=cause,
            brokers=broker_rows(self._image),
            topics=topics,
            deleted=[] if acked_version is None else self._deleted_since(base),
        )
        return self._encode(request), image.version

    def _role(self, topic: TopicImage, number: int, broker_id: int) -> PartitionRow | None:
        """Return a partition's row for one broker; None without a replica or a state.

        A broker that registered after the state was written is not the leader named there:
        its row names no leader until the next election (rule R9).
        """
        partition = topic.active_partition(number)
        if partition is None or partition.state is None or broker_id not in partition.replicas:
            return None
        row = _row(topic, number, partition, partition.state)
        if row.leader == broker_id and not self._was_registered(broker_id, partition.zxid):
            return msgspec.structs.replace(row, leader=NO_LEADER)
        return row

    def _was_registered(self, broker_id: int, zxid: int) -> bool:
        """Tell whether a live broker was registered at a transaction; it may be gone by now."""
        registered_at = self._image.registered_at.get(broker_id)
        return registered_at is not None and registered_at <= zxid

    def _fragment(self, topic: TopicImage) -> msgspec.Raw:
        """Return a topic's rows, encoded once for each change of the topic."""
        known = self._fragments.get(topic.name)
        if known is not None and known[:2] == (topic.changed_at, topic.topic_id):
            return known[2]
        encoded = msgspec.Raw(self._encode(_metadata_rows(topic)))
        self._fragments[topic.name] = (topic.changed_at, topic.topic_id, encoded)
        return encoded

    def _deleted_since(self, base: int) -> list[str]:
        """Return the topics that were deleted, or whose deletion began, since a version."""
        gone = [name for name, version in self._image.deleted_at.items() if version > base]
        for name in gone:
            self._fragments.pop(name, None)
        deleting = [
            t.name for t in self._image.topics.values() if t.deleting and t.changed_at > base
        ]
        return [*gone, *deleting]


def broker_rows(image: ClusterImage) -> list[BrokerRow]:
    """Return the live brokers in order of their ids."""
    return [
        BrokerRow(broker.id, broker.url, broker.rack, broker.incarnation, broker.internal_url)
        for _, broker in sorted(image.brokers.items())
    ]


def _without(topic: TopicRows, partitions: PartitionsByTopic) -> TopicRows | None:
    """Return a topic without some partitions, None if none is left."""
    left_out = set(partitions.get(topic.topic, ()))
    if not left_out:
        return topic
    rows = [row for row in topic.partitions if row.partition not in left_out]
    return msgspec.structs.replace(topic, partitions=rows) if rows else None


def _numbers(topics: list[TopicRows] | list[StopTopic]) -> list[tuple[str, list[int]]]:
    return [(topic.topic, [row.partition for row in topic.partitions]) for topic in topics]


def _row(
    topic: TopicImage, number: int, partition: PartitionImage, state: PartitionState
) -> PartitionRow:
    return PartitionRow(
        number,
        state.leader,
        state.leader_epoch,
        state.isr,
        partition.replicas,
        partition.version,
        state.eligible,
        topic.assignment.adding.get(number, ()),
        topic.assignment.first_epochs.get(number, 0),
        state.directory_epochs,
    )


def _metadata_rows(topic: TopicImage) -> TopicRows:
    """Return every partition's row; the leader epoch is -1 before the first leader."""
    rows = [
        _row(topic, number, partition, partition.state or _NEVER_LED)
        for number, partition in topic.active_partitions.items()
    ]
    return TopicRows(topic.name, topic.topic_id, topic.configs, rows)


def _is_to_delete(topic: TopicImage, number: int, broker_id: int) -> bool:
    if topic.deleting or number in topic.pending_removal:
        return True
    partition = topic.partitions.get(number)
    return partition is not None and broker_id not in partition.replicas


def _is_to_halt(topic: TopicImage, number: int, broker_id: int) -> bool:
    partition = topic.active_partition(number)
    return partition is not None and not (partition.state and broker_id in partition.state.isr)


def _epoch(partition: PartitionImage | None) -> int:
    state = None if partition is None else partition.state
    return FIRST_EPOCH if state is None else state.leader_epoch
