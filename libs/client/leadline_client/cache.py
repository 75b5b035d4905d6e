"""What a client knows of the cluster, and never un-knows (rule R15).

Metadata comes from any broker, also from one that lags; hints come with
refusals. For each partition the knowledge with the highest leader epoch stays:
a client never goes back to a leader that was succeeded. Pure: no IO.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from leadline_client.errors import LeaderHint
from leadline_client.wire import (
    NO_LEADER,
    BrokerInfo,
    ControllerInfo,
    Metadata,
    PartitionInfo,
    TopicInfo,
)


class MetadataCache:
    """Brokers, controller, and the newest known leader of each partition."""

    def __init__(self) -> None:
        self._version = -1
        self._cluster_id = ""
        self._controller: ControllerInfo | None = None
        self._brokers: dict[int, BrokerInfo] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._hints: dict[tuple[str, int], LeaderHint] = {}

    @property
    def controller(self) -> ControllerInfo | None:
        """The active controller with the highest epoch heard of."""
        return self._controller

    @property
    def broker_urls(self) -> tuple[str, ...]:
        """The addresses of the live brokers, as of the newest metadata."""
        return tuple(broker.url for broker in self._brokers.values())

    def topic(self, name: str) -> TopicInfo | None:
        """Return what is known of a topic."""
        return self._topics.get(name)

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """Return what is known of a partition."""
        known = self._topics.get(topic)
        return None if known is None else _row(known, partition)

    def leader_url(self, topic: str, partition: int) -> str | None:
        """Return where the leader is, or None where no leader is known."""
        hint = self._hints.get((topic, partition))
        if hint is not None:
            return hint.url
        row = self.partition(topic, partition)
        broker = None if row is None else self._brokers.get(row.leader)
        return None if broker is None else broker.url

    def leader_epoch(self, topic: str, partition: int) -> int | None:
        """Return the highest leader epoch heard of."""
        row = self.partition(topic, partition)
        hint = self._hints.get((topic, partition))
        epochs = [] if row is None else [row.leader_epoch]
        return max([*epochs, hint.epoch] if hint else epochs, default=None)

    def learn(self, topic: str, partition: int, hint: LeaderHint) -> bool:
        """Take the hint of a refusal; return whether it named a newer leader.

        An older hint comes from a broker that lags, an equal one says nothing
        new: in both cases the caller should wait rather than run in circles.
        """
        known = self.leader_epoch(topic, partition)
        epoch = -1 if known is None else known
        if hint.id == NO_LEADER or not hint.url or hint.epoch < epoch:
            return False
        if hint.epoch == epoch and self.leader_url(topic, partition) is not None:
            return False
        self._hints[topic, partition] = hint
        return True

    def update(self, document: Metadata, asked: Collection[str] | None = None) -> None:
        """Merge a metadata document; `asked` names the topics that it was limited to."""
        newer = document.version >= self._version
        if newer:
            self._version = document.version
            self._cluster_id = document.cluster_id
            self._brokers = dict(document.brokers)
            self._forget_deleted(document, asked)
        self._update_controller(document.controller)
        for name, topic in document.topics.items():
            self._topics[name] = self._merged(self._topics.get(name), topic, newer=newer)
            self._drop_old_hints(self._topics[name])

    def snapshot(self, document: Metadata) -> Metadata:
        """Return `document` with brokers and topics as this cache knows them, never older."""
        topics = {name: self._topics[name] for name in document.topics if name in self._topics}
        return replace(
            document,
            version=max(document.version, self._version),
            brokers=dict(self._brokers),
            controller=self._controller,
            topics=topics,
        )

    def _update_controller(self, controller: ControllerInfo | None) -> None:
        known = self._controller
        if controller is not None and (known is None or controller.epoch >= known.epoch):
            self._controller = controller

    def _forget_deleted(self, document: Metadata, asked: Collection[str] | None) -> None:
        candidates = list(self._topics) if asked is None else list(asked)
        for name in candidates:
            if name not in document.topics and self._topics.pop(name, None) is not None:
                self._hints = {key: hint for key, hint in self._hints.items() if key[0] != name}

    def _merged(self, known: TopicInfo | None, fresh: TopicInfo, *, newer: bool) -> TopicInfo:
        if known is None:
            return fresh
        if known.topic_id != fresh.topic_id:
            # Deleted and created again: leader epochs start anew, so only the version decides.
            if newer:
                self._hints = {k: h for k, h in self._hints.items() if k[0] != fresh.name}
            return fresh if newer else known
        rows = {row.partition: row for row in known.partitions}
        if newer:  # What it does not name has been removed; an older one may not know it yet.
            for gone in rows.keys() - {row.partition for row in fresh.partitions}:
                del rows[gone]
                self._hints.pop((fresh.name, gone), None)
        for row in fresh.partitions:
            old = rows.get(row.partition)
            # Within one epoch only the ISR changes, and the newer document knows it better.
            if old is None or row.leader_epoch >= old.leader_epoch + (not newer):
                rows[row.partition] = row
        return replace(fresh, partitions=tuple(rows[number] for number in sorted(rows)))

    def _drop_old_hints(self, topic: TopicInfo) -> None:
        for row in topic.partitions:
            hint = self._hints.get((topic.name, row.partition))
            if hint is not None and row.leader_epoch >= hint.epoch:
                del self._hints[topic.name, row.partition]


def _row(topic: TopicInfo, partition: int) -> PartitionInfo | None:
    if 0 <= partition < len(topic.partitions):
        row = topic.partitions[partition]
        if row.partition == partition:
            return row
    return next((row for row in topic.partitions if row.partition == partition), None)
