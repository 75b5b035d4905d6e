"""The change feed: what has changed in the cluster since a state of its metadata, for one reader.

The feed is level-triggered, like all metadata: an event carries the current state, and
several changes between two polls become one event. So the feed needs no history, and a
reader can continue at any controller. A controller does not know which topics were deleted before
its term: a reader that comes from an earlier one is told the names of all that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from leadline_common.metadata_tags import MetadataTag
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, PartitionImage


class BrokersSnapshot(msgspec.Struct, frozen=True):
    """The live brokers, after the set of live brokers changed."""

    brokers: tuple[BrokerRegistration, ...]


class TopicNames(msgspec.Struct, frozen=True):
    """All topics that exist, for a reader who may know topics that were deleted since."""

    topics: tuple[str, ...]


class TopicSnapshot(msgspec.Struct, frozen=True):
    """A topic that the reader does not know yet: its configs and all its partitions."""

    topic: str
    topic_id: str
    configs: dict[str, str]
    partitions: dict[int, PartitionImage]


class TopicDelta(msgspec.Struct, frozen=True):
    """What changed in a topic that the reader knows; `configs` is None if they did not change."""

    topic: str
    topic_id: str
    configs: dict[str, str] | None
    partitions: dict[int, PartitionImage]
    removed: tuple[int, ...]


class TopicDeleted(msgspec.Struct, frozen=True):
    """A topic that was deleted or is being deleted."""

    topic: str


FeedEvent: TypeAlias = BrokersSnapshot | TopicNames | TopicSnapshot | TopicDelta | TopicDeleted

_NOTHING: Final = -1
"""A version below all others."""


class ChangeFeed:
    """The position of one reader: everything up to metadata version `version` has been sent.

    A reader continues `after` a state, or begins with the present one. If that state is of another
    controller epoch than the image, the first events are the whole state.
    """

    def __init__(self, image: ClusterImage, after: MetadataTag | None) -> None:
        self.version = image.version if after is None else after.version
        self._image = image
        self._sent: dict[str, TopicSnapshot] = {}
        self._foreign: MetadataTag | None = None
        if after is not None and after.controller_epoch != image.controller_epoch:
            self._foreign, self.version = after, _NOTHING

    @property
    def position(self) -> MetadataTag:
        """The state that the reader has."""
        return self._foreign or MetadataTag(self._image.controller_epoch, self.version)

    def poll(self) -> list[FeedEvent]:
        """Return what has changed since the last poll, and advance the position."""
        since, self.version = self.version, max(self.version, self._image.version)
        if self._image.version <= since:
            return []
        names: list[TopicNames] = []
        if self._foreign is not None:
            self._foreign = None
            names = [TopicNames(tuple(t.name for t in self._image.topics.values() if t.is_visible))]
        return [*self._brokers(since), *names, *self._topics(since), *self._deleted(since)]

    def _brokers(self, since: int) -> Iterator[BrokersSnapshot]:
        if self._image.brokers_changed_at > since:
            yield BrokersSnapshot(tuple(b for _, b in sorted(self._image.brokers.items())))

    def _topics(self, since: int) -> Iterator[TopicSnapshot | TopicDelta]:
        for topic in self._image.topics.values():
            if topic.changed_at <= since or not topic.is_visible:
                continue
            now = TopicSnapshot(
                topic.name, topic.topic_id, dict(topic.configs), dict(topic.active_partitions)
            )
            before = self._sent.get(topic.name)
            self._sent[topic.name] = now
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
            self._sent.pop(name, None)
            yield TopicDeleted(name)


def _difference(before: TopicSnapshot, now: TopicSnapshot) -> TopicDelta:
    partitions = {
        number: partition
        for number, partition in now.partitions.items()
        if before.partitions.get(number) != partition
    }
    removed = tuple(number for number in before.partitions if number not in now.partitions)
    configs = now.configs if now.configs != before.configs else None
    return TopicDelta(now.topic, now.topic_id, configs, partitions, removed)
