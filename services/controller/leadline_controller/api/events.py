"""The change feed, from the image of the active controller."""

from __future__ import annotations

from leadline_client.errors import NoController
from leadline_common.api.events import EventBody
from leadline_common.api.metadata import MetadataBroker
from leadline_controller.api.answers import Answers
from leadline_controller.domain.cluster import PartitionImage
from leadline_controller.domain.feed import (
    BrokersNow,
    Feed,
    News,
    TopicChanged,
    TopicDeleted,
    TopicNow,
)
from leadline_controller.runtime.channel.metadata_snapshot import partition_row
from leadline_controller.runtime.service import ControllerService

_Rows = list[tuple[int, int, int, list[int], list[int]]]


class FeedReader:
    """One reader's place in the feed of one term: it ends with the term."""

    def __init__(self, controller: ControllerService, after: int | None) -> None:
        self._controller = controller
        self._reign = controller.reign()
        self._feed = Feed(self._reign.image, after)

    @property
    def version(self) -> int:
        """The version up to which the reader was told."""
        return self._feed.version

    async def read(self, wait_ms: int) -> list[EventBody] | None:
        """Return what is new, once there is something, after `wait_ms` at most; None at the end."""
        try:
            await self._controller.metadata(self._feed.version, wait_ms)
            if self._controller.is_stopping or self._controller.reign() is not self._reign:
                return None
        except NoController:
            return None
        return [_event(news) for news in self._feed.news()]


class EventAnswers(Answers):
    """Answers `leadline_common.api.events.EventAdministration`."""

    def follow(self, after: int | None) -> FeedReader:
        """Begin to follow from a version on, or from now on."""
        return FeedReader(self._controller, after)


def _event(news: News) -> EventBody:
    match news:
        case BrokersNow():
            brokers = [
                MetadataBroker(id=b.id, url=b.url, rack=b.rack, incarnation=b.incarnation)
                for b in news.brokers
            ]
            return EventBody(type="brokers", brokers=brokers)
        case TopicDeleted():
            return EventBody(type="topic_deleted", topic=news.topic)
        case TopicNow():
            return EventBody(
                type="topic",
                topic=news.topic,
                topic_id=news.topic_id,
                configs=news.configs,
                partitions=_rows(news.partitions),
            )
        case TopicChanged():
            return EventBody(
                type="topic_changed",
                topic=news.topic,
                topic_id=news.topic_id,
                configs=news.configs,
                partitions=_rows(news.partitions),
                removed=list(news.removed),
            )


def _rows(partitions: dict[int, PartitionImage]) -> _Rows:
    rows = (partition_row(number, partition) for number, partition in partitions.items())
    return [
        (number, leader, epoch, list(isr), list(replicas))
        for number, leader, epoch, isr, replicas in rows
    ]
