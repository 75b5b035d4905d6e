"""The metadata document that clients read: prebuilt bytes, encoded once per changed topic.

Shape: {"cluster_id", "version", "controller", "brokers", "topics": {name: {"topic_id",
"partitions": [[p, leader, leader_epoch, [isr], [replicas]]]}}}; leader -1 if
there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from leadline_client.wire import NO_LEADER
from leadline_common.metadata_tags import MetadataTag
from leadline_common.rpc import BrokerRow, ControllerRow
from leadline_controller.domain.cluster import ClusterImage, PartitionImage, TopicImage
from leadline_controller.runtime.channel.requests import broker_rows

Show = Callable[[Collection[str]], Iterable[str]]


@dataclass(eq=False)
class MetadataView:
    """The document of one leadership term."""

    image: ClusterImage
    cluster_id: str
    controller: ControllerRow
    _fragments: dict[str, tuple[int, bytes]] = field(default_factory=dict, init=False)
    _whole: tuple[int, bytes] | None = field(default=None, init=False)

    @property
    def version(self) -> int:
        """The version of the document; it grows with every change."""
        return self.image.version

    @property
    def tag(self) -> MetadataTag:
        """The identity of the document's content: controller epoch and version."""
        return MetadataTag(self.controller.epoch, self.version)

    def etag(self) -> str:
        """Return the tag as an ETag has it, without its quotes."""
        return str(self.tag)

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self.image.topics.keys()

    def document(self, topics: Iterable[str] | None = None) -> bytes:
        """Return the document, of all topics or of some; unknown topics are absent."""
        known = self.image.topics
        if topics is not None:
            found = (known[name] for name in dict.fromkeys(topics) if name in known)
            return self._assemble([topic for topic in found if topic.is_visible])
        if self._whole is None or self._whole[0] != self.version:
            shown = [topic for topic in known.values() if topic.is_visible]
            self._whole = (self.version, self._assemble(shown))
        return self._whole[1]

    def changes(self, base: MetadataTag, show: Show) -> bytes | None:
        """Return what has changed since an earlier state; None if that is of another term.

        `show` returns those of some names of topics that the caller asks for and may see. Changed
        topics are sent whole: the image knows when a topic has changed, not which partitions.
        """
        if base.controller_epoch != self.controller.epoch:
            return None
        changed = {t.name: t for t in self.image.topics.values() if t.changed_at > base.version}
        topics = [changed[name] for name in show(changed) if changed[name].is_visible]
        gone = [name for name, at in self.image.deleted_at.items() if at > base.version]
        gone += [name for name, topic in changed.items() if not topic.is_visible]
        rest = {"changed_after": str(base), "changed_rows": {}, "deleted_topics": [*show(gone)]}
        return self._assemble(topics)[:-1] + b"," + msgspec.json.encode(rest)[1:]

    def _assemble(self, topics: list[TopicImage]) -> bytes:
        head = {
            "cluster_id": self.cluster_id,
            "version": self.version,
            "controller": _for_clients(self.controller),
            "brokers": [_for_clients(row) for row in broker_rows(self.image)],
        }
        rows = b",".join(map(self._fragment, topics))
        return msgspec.json.encode(head)[:-1] + b',"topics":{' + rows + b"}}"

    def _fragment(self, topic: TopicImage) -> bytes:
        known = self._fragments.get(topic.name)
        if known is not None and known[0] == topic.changed_at:
            return known[1]
        rows = [
            partition_row(number, partition)
            for number, partition in topic.active_partitions.items()
        ]
        value = {"topic_id": topic.topic_id, "partitions": rows}
        encoded = msgspec.json.encode(topic.name) + b":" + msgspec.json.encode(value)
        self._fragments[topic.name] = (topic.changed_at, encoded)
        return encoded


def partition_row(
    number: int, partition: PartitionImage
) -> tuple[int, int, int, tuple[int, ...], tuple[int, ...]]:
    """Return a partition's row: number, leader, leader epoch, ISR, replicas."""
    state = partition.state
    if state is None:
        return (number, NO_LEADER, -1, (), partition.replicas)
    return (number, state.leader, state.leader_epoch, state.isr, partition.replicas)


def _for_clients(row: ControllerRow | BrokerRow) -> dict[str, Any]:
    """Return a row without the address that only services use."""
    members = msgspec.structs.asdict(row)
    del members["internal_url"]
    return members
