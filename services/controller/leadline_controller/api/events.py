"""The change feed, served from the image of the active controller."""

from __future__ import annotations

from leadline_client.errors import NoController
from leadline_common.api.events import EventBody
from leadline_common.api.metadata import MetadataBroker, MetadataRow
from leadline_common.metadata_tags import MetadataTag
from leadline_controller.domain.cluster import PartitionImage
from leadline_controller.domain.feed import (
    BrokersSnapshot,
    ChangeFeed,
    FeedEvent,
    TopicDeleted,
    TopicDelta,
    TopicNames,
    TopicSnapshot,
)
from leadline_controller.runtime.channel.metadata_snapshot import partition_row
from leadline_controller.runtime.service import ControllerService


class FeedReader:
    """The position of one reader in the feed; the feed ends with the leadership term."""

    def __init__(self, controller: ControllerService, after: MetadataTag | None) -> None:
        self._controller = controller
        self._active = controller.active_controller()
        self._feed = ChangeFeed(self._active.image, after)

    @property
    def position(self) -> MetadataTag:
        """The state of the metadata that the reader has."""
        return self._feed.position

    async def read(self, wait_ms: int) -> list[EventBody] | None:
        """Wait up to `wait_ms` for changes and return them; None when the feed has ended."""
        try:
            await self._controller.metadata(self._feed.version, wait_ms)
            if (
                self._controller.is_stopping
                or self._controller.active_controller() is not self._active
            ):
                return None
        except NoController:
            return None
        return [_event(event) for event in self._feed.poll()]


class EventEndpoints:
    """Implements `leadline_common.api.events.EventAdministration`."""

    _controller: ControllerService

    def follow(self, after: MetadataTag | None) -> FeedReader:
        """Return a reader that continues after a state, or begins with the present one."""
        return FeedReader(self._controller, after)


def _event(event: FeedEvent) -> EventBody:
    match event:
        case BrokersSnapshot():
            brokers = [
                MetadataBroker(id=b.id, url=b.url, rack=b.rack, incarnation=b.incarnation)
                for b in event.brokers
            ]
            return EventBody(type="brokers", brokers=brokers)
        case TopicNames():
            return EventBody(type="topics", topics=list(event.topics))
        case TopicDeleted():
            return EventBody(type="topic_deleted", topic=event.topic)
        case TopicSnapshot():
            return EventBody(
                type="topic",
                topic=event.topic,
                topic_id=event.topic_id,
                configs=event.configs,
                partitions=_rows(event.partitions),
            )
        case TopicDelta():
            return EventBody(
                type="topic_changed",
                topic=event.topic,
                topic_id=event.topic_id,
                configs=event.configs,
                partitions=_rows(event.partitions),
                removed=list(event.removed),
            )


def _rows(
    partitions: dict[int, PartitionImage],
) -> list[MetadataRow]:
    rows = (partition_row(number, partition) for number, partition in partitions.items())
    return [
        MetadataRow(number, leader, epoch, list(isr), list(replicas))
        for number, leader, epoch, isr, replicas in rows
    ]
