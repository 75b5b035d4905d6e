"""The client's cache of cluster metadata, which never goes back to an older leader (rule R15).

Metadata may come from a broker that lags, and refusals carry leader hints. For each
partition the cache keeps the information with the highest leader epoch. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from leadline_client.errors import ClusterChanged, LeaderHint
from leadline_client.wire import (
    NO_LEADER,
    BrokerInfo,
    ControllerInfo,
    Metadata,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)


class MetadataCache:
    """Brokers, controller, and the newest known leader of each partition.

    `cluster_id` is that of the first response; a client never goes over to another cluster.
    `controller` is the one with the highest known epoch.
    """

    def __init__(self) -> None:
        self._version = -1
        self.cluster_id: str | None = None
        self.controller: ControllerInfo | None = None
        self._brokers: dict[int, BrokerInfo] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._hints: dict[TopicPartition, LeaderHint] = {}

    @property
    def broker_urls(self) -> tuple[str, ...]:
        """The addresses of the live brokers in the newest metadata."""
        return tuple(broker.url for broker in self._brokers.values())

    def topic(self, name: str) -> TopicInfo | None:
        """Return a topic, or None if it is not known."""
        return self._topics.get(name)

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """Return a partition, or None if it is not known."""
        known = self._topics.get(topic)
        return None if known is None else _row(known, partition)

    def leader_url(self, topic: str, partition: int) -> str | None:
        """Return the leader's address, or None if no leader is known."""
        hint = self._hints.get(TopicPartition(topic, partition))
        if hint is not None:
            return hint.url
        row = self.partition(topic, partition)
        broker = None if row is None else self._brokers.get(row.leader)
        return None if broker is None else broker.url

    def in_sync_brokers(self, topic: str, partition: int) -> tuple[BrokerInfo, ...]:
        """Return the live brokers of the ISR, in its order."""
        row = self.partition(topic, partition)
        isr = () if row is None else row.isr
        return tuple(self._brokers[broker] for broker in isr if broker in self._brokers)

    def leader_epoch(self, topic: str, partition: int) -> int | None:
        """Return the highest known leader epoch, or None."""
        row = self.partition(topic, partition)
        hint = self._hints.get(TopicPartition(topic, partition))
        epochs = [] if row is None else [row.leader_epoch]
        return max([*epochs, hint.epoch] if hint else epochs, default=None)

    def apply_hint(self, topic: str, partition: int, hint: LeaderHint) -> bool:
        """Apply the leader hint of a refusal; return whether it names a newer leader.

        If not, the hint is known already or comes from a broker that lags, and the
        caller should wait before it asks again.
        """
        known = self.leader_epoch(topic, partition)
        epoch = -1 if known is None else known
        if hint.id == NO_LEADER or not hint.url or hint.epoch < epoch:
            return False
        if hint.epoch == epoch and self.leader_url(topic, partition) is not None:
            return False
        self._hints[TopicPartition(topic, partition)] = hint
        return True

    def update(self, document: Metadata, asked: Collection[str] | None = None) -> None:
        """Merge a metadata document; `asked` names the topics that it is limited to.

        Raises ClusterChanged: it is of another cluster, so nothing is merged.
        """
        self.identify(document.cluster_id)
        if self.cluster_id not in (None, document.cluster_id):
            raise ClusterChanged.between(str(self.cluster_id), document.cluster_id)
        newer = document.version >= self._version
        if newer:
            self._version = document.version
            self._brokers = dict(document.brokers)
            self._forget_deleted(document, asked)
        self._update_controller(document.controller)
        for name, topic in document.topics.items():
            self._topics[name] = self._merged(self._topics.get(name), topic, newer=newer)
            self._drop_old_hints(self._topics[name])

    def identify(self, cluster_id: str | None) -> None:
        """Note which cluster answers, unless it is known."""
        self.cluster_id = self.cluster_id or cluster_id

    def snapshot(self, document: Metadata) -> Metadata:
        """Return `document` with newer brokers and topics of this cache in place of older ones."""
        topics = {name: self._topics[name] for name in document.topics if name in self._topics}
        return replace(
            document,
            version=max(document.version, self._version),
            brokers=dict(self._brokers),
            controller=self.controller,
            topics=topics,
        )

    def _update_controller(self, controller: ControllerInfo | None) -> None:
        known = self.controller
        if controller is not None and (known is None or controller.epoch >= known.epoch):
            self.controller = controller

    def _forget_deleted(self, document: Metadata, asked: Collection[str] | None) -> None:
        candidates = list(self._topics) if asked is None else list(asked)
        for name in candidates:
            if name not in document.topics and self._topics.pop(name, None) is not None:
                self._drop_hints(name)

    def _drop_hints(self, topic: str) -> None:
        self._hints = {key: hint for key, hint in self._hints.items() if key.topic != topic}

    def _merged(self, known: TopicInfo | None, fresh: TopicInfo, *, newer: bool) -> TopicInfo:
        if known is None:
            return fresh
        if known.topic_id != fresh.topic_id:
            # Leader epochs of a recreated topic start from 0, so only the version can decide.
            if newer:
                self._drop_hints(fresh.name)
            return fresh if newer else known
        rows = {row.partition: row for row in known.partitions}
        if newer:  # An older document may just not know a partition yet.
            for removed in rows.keys() - {row.partition for row in fresh.partitions}:
                del rows[removed]
                self._hints.pop(TopicPartition(fresh.name, removed), None)
        for row in fresh.partitions:
            old = rows.get(row.partition)
            # Within one leader epoch only the ISR changes; the newer document has the newer ISR.
            if old is None or row.leader_epoch >= old.leader_epoch + (not newer):
                rows[row.partition] = row
        return replace(fresh, partitions=tuple(rows[number] for number in sorted(rows)))

    def _drop_old_hints(self, topic: TopicInfo) -> None:
        for row in topic.partitions:
            topic_partition = TopicPartition(topic.name, row.partition)
            hint = self._hints.get(topic_partition)
            if hint is not None and row.leader_epoch >= hint.epoch:
                del self._hints[topic_partition]


def _row(topic: TopicInfo, partition: int) -> PartitionInfo | None:
    if 0 <= partition < len(topic.partitions):
        row = topic.partitions[partition]
        if row.partition == partition:
            return row
    return next((row for row in topic.partitions if row.partition == partition), None)
