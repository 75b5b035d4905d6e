"""What has changed in the cluster since a version, for one reader who follows.

Level-triggered, as all metadata is: an event says what is there now, and several
changes of one thing between two looks are one event. So no history has to be kept,
and any controller can go on for a reader who comes from another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, PartitionImage, TopicImage


class BrokersSnapshot(msgspec.Struct, frozen=True):
    """The live brokers, after some came or went."""

    brokers: tuple[BrokerRegistration, ...]


class TopicSnapshot(msgspec.Struct, frozen=True):
    """A topic that the reader has not been told of: its settings and all its partitions."""

    topic: str
    topic_id: str
    configs: dict[str, str]
    partitions: dict[int, PartitionImage]


class TopicChanged(msgspec.Struct, frozen=True):
    """What differs from what the reader was told of a topic; settings None where they do not."""

    topic: str
    topic_id: str
    configs: dict[str, str] | None
    partitions: dict[int, PartitionImage]
    removed: tuple[int, ...]


class TopicDeleted(msgspec.Struct, frozen=True):
    """A topic that is gone, or on its way."""

    topic: str


News: TypeAlias = BrokersSnapshot | TopicSnapshot | TopicChanged | TopicDeleted


class Feed:
    """What one reader was told; `version` is the one up to which."""

    def __init__(self, image: ClusterImage, after: int | None) -> None:
        self.version = image.version if after is None else after
        self._image = image
        self._told: dict[str, TopicSnapshot] = {}

    def news(self) -> list[News]:
        """Return what has changed since the last look, and take it as told."""
        since, self.version = self.version, max(self.version, self._image.version)
        if self._image.version <= since:
            return []
        return [*self._brokers(since), *self._topics(since), *self._deleted(since)]

    def _brokers(self, since: int) -> Iterator[BrokersSnapshot]:
        if self._image.brokers_changed_at > since:
            yield BrokersSnapshot(tuple(b for _, b in sorted(self._image.brokers.items())))

    def _topics(self, since: int) -> Iterator[TopicSnapshot | TopicChanged]:
        for topic in self._image.topics.values():
            if topic.changed_at <= since or not _is_shown(topic):
                continue
            now = TopicSnapshot(
                topic.name, topic.topic_id, dict(topic.configs), dict(topic.active_partitions)
            )
            before = self._told.get(topic.name)
            self._told[topic.name] = now
            if before is None or before.topic_id != now.topic_id:
                yield now
                continue
            changed = _difference(before, now)
            if changed.configs is not None or changed.partitions or changed.removed:
                yield changed

    def _deleted(self, since: int) -> Iterator[TopicDeleted]:
        gone = [name for name, version in self._image.deleted_at.items() if version > since]
        going = [t.name for t in self._image.topics.values() if t.deleting and t.changed_at > since]
        for name in (*gone, *going):
            self._told.pop(name, None)
            yield TopicDeleted(name)


def _is_shown(topic: TopicImage) -> bool:
    return bool(topic.topic_id) and not topic.deleting


def _difference(before: TopicSnapshot, now: TopicSnapshot) -> TopicChanged:
    partitions = {
        number: partition
        for number, partition in now.partitions.items()
        if before.partitions.get(number) != partition
    }
    removed = tuple(number for number in before.partitions if number not in now.partitions)
    configs = now.configs if now.configs != before.configs else None
    return TopicChanged(now.topic, now.topic_id, configs, partitions, removed)
