"""The client's cache of cluster metadata, which never goes back to an older leader (rule R15).

Metadata may come from a broker that lags, and refusals carry leader hints. For each
partition the cache keeps the information with the highest leader epoch. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from leadline_client.errors import ClusterChanged, LeaderHint
from leadline_client.wire import (
    NO_LEADER,
    BrokerInfo,
    ControllerInfo,
    Metadata,
    MetadataChanges,
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
        self._version = (-1, -1)
        self.cluster_id: str | None = None
        self.controller: ControllerInfo | None = None
        self._brokers: dict[int, BrokerInfo] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._hints: dict[TopicPartition, LeaderHint] = {}
        self._unsure: set[str] = set()

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
        caller should wait before it asks again. It may be about another topic that had
        the name: an epoch of that says nothing about this one, and would never be reached.
        """
        topic_id = self._topics[topic].topic_id if topic in self._topics else ""
        if not _same_topic(hint, topic_id):
            return False
        known = self.leader_epoch(topic, partition)
        epoch = -1 if known is None else known
        if hint.id == NO_LEADER or not hint.url or hint.epoch < epoch:
            return False
        if hint.epoch == epoch and self.leader_url(topic, partition) is not None:
            return False
        self._hints[TopicPartition(topic, partition)] = hint
        return True

    def update(self, document: Metadata, asked: Collection[str] | None = None) -> bool:
        """Merge a metadata document; `asked` names the topics that it is limited to.

        Returns whether it is at least as new as what is known. Raises ClusterChanged: it is of
        another cluster, so nothing is merged.
        """
        newer = self._merge_head(document)
        if newer:
            self._forget_deleted(document, asked)
        self._merge_topics(document.topics, newer=newer)
        return newer

    def update_changes(self, changes: MetadataChanges) -> bool:
        """Merge what has changed since a state that the cache has; returns and raises as `update`.

        Rows of a topic that the cache does not have are left out: `has_all` tells.
        """
        newer = self._merge_head(changes.document)
        if newer:
            for name in changes.deleted:
                self._forget(name)
        self._merge_topics(changes.document.topics, newer=newer)
        for name, topic in changes.rows.items():
            known = self._topics.get(name)
            if known is not None and known.topic_id == topic.topic_id:
                if not newer:
                    self._note_older(known, topic)
                self._topics[name] = self._with_rows(known, topic, newer=newer)
                self._drop_old_hints(topic)
        return newer

    def has_all(self, topics: Iterable[str], with_ids: Mapping[str, TopicInfo]) -> bool:
        """Tell whether all these topics are known for sure, and some of them with these ids.

        Not sure are those of which an older document has added partitions: it may know a partition
        that has been removed since.
        """
        sure = self._topics.keys() - self._unsure
        return all(name in sure for name in topics) and all(
            name in self._topics and self._topics[name].topic_id == topic.topic_id
            for name, topic in with_ids.items()
        )

    def identify(self, cluster_id: str | None) -> None:
        """Note which cluster answers, unless it is known."""
        self.cluster_id = self.cluster_id or cluster_id

    def snapshot(self, document: Metadata, names: Iterable[str] | None = None) -> Metadata:
        """Return `document` with newer brokers and topics of this cache in place of older ones.

        With `names`, it has these topics instead of its own.
        """
        shown = document.topics if names is None else names
        topics = {name: self._topics[name] for name in shown if name in self._topics}
        return replace(
            document,
            version=max(document.version, self._version[0]),
            brokers=dict(self._brokers),
            controller=self.controller,
            topics=topics,
        )

    def _merge_head(self, document: Metadata) -> bool:
        """Merge all but the topics; return whether the document is as new as what is known."""
        self.identify(document.cluster_id)
        if self.cluster_id not in (None, document.cluster_id):
            raise ClusterChanged.between(str(self.cluster_id), document.cluster_id)
        # A controller may have published the version at which its successor began.
        version = (document.version, document.controller.epoch if document.controller else -1)
        newer = version >= self._version
        if newer:
            self._version = version
            self._brokers = dict(document.brokers)
        self._update_controller(document.controller)
        return newer

    def _merge_topics(self, topics: Mapping[str, TopicInfo], *, newer: bool) -> None:
        for name, topic in topics.items():
            known = self._topics.get(name)
            if newer:
                self._unsure.discard(name)
            else:
                self._note_older(known, topic)
            self._topics[name] = self._merged(known, topic, newer=newer)
            self._drop_old_hints(self._topics[name])

    def _note_older(self, known: TopicInfo | None, fresh: TopicInfo) -> None:
        if known is None or any(_row(known, row.partition) is None for row in fresh.partitions):
            self._unsure.add(fresh.name)

    def _update_controller(self, controller: ControllerInfo | None) -> None:
        known = self.controller
        if controller is not None and (known is None or controller.epoch >= known.epoch):
            self.controller = controller

    def _forget_deleted(self, document: Metadata, asked: Collection[str] | None) -> None:
        candidates = list(self._topics) if asked is None else list(asked)
        for name in candidates:
            if name not in document.topics:
                self._forget(name)

    def _forget(self, name: str) -> None:
        self._unsure.discard(name)
        if self._topics.pop(name, None) is not None:
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
        if newer:  # An older document may just not know a partition yet.
            known = self._without_removed(known, fresh)
        return self._with_rows(known, fresh, newer=newer)

    def _without_removed(self, known: TopicInfo, fresh: TopicInfo) -> TopicInfo:
        left = {row.partition for row in fresh.partitions}
        for row in known.partitions:
            if row.partition not in left:
                self._hints.pop(TopicPartition(fresh.name, row.partition), None)
        return replace(known, partitions=tuple(r for r in known.partitions if r.partition in left))

    @staticmethod
    def _with_rows(known: TopicInfo, fresh: TopicInfo, *, newer: bool) -> TopicInfo:
        """Return a topic with those rows of another state of it that are newer."""
        rows = {row.partition: row for row in known.partitions}
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
            if hint is not None and (
                row.leader_epoch >= hint.epoch or not _same_topic(hint, topic.topic_id)
            ):
                del self._hints[topic_partition]


def _same_topic(hint: LeaderHint, topic_id: str) -> bool:
    """Tell whether a hint may be about the topic with this id, as far as both are known."""
    return not hint.topic_id or not topic_id or hint.topic_id == topic_id


def _row(topic: TopicInfo, partition: int) -> PartitionInfo | None:
    if 0 <= partition < len(topic.partitions):
        row = topic.partitions[partition]
        if row.partition == partition:
            return row
    return next((row for row in topic.partitions if row.partition == partition), None)
