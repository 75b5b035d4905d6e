"""The metadata of the whole cluster, and the document that the broker serves from it.

Only the controller's UpdateMetadata requests change it. The document consists of one encoded
fragment per topic, so that a change encodes only the changed topics. Versions never go
backwards (rule R15).

Callers that have an earlier state get what has changed since (`MetadataHistory`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from leadline_broker.domain.metadata_history import ChangesSince, MetadataHistory
from leadline_broker.domain.served_topic import ServedTopic
from leadline_client.errors import BrokerFenced, LeadlineError, StaleVersion, UnknownTopic
from leadline_client.wire import BrokerInfo, ControllerInfo
from leadline_common.metadata_tags import MetadataTag
from leadline_common.rpc import ControllerRow, PartitionRow, TopicRows, UpdateMetadataRequest
from leadline_common.slices import in_turns, parts
from leadline_common.waiting import CountedWait

_json = msgspec.json.encode
_ROWS_AT_ONCE: Final = 5_000
"""Encoding so many takes 10 ms; each further turn waits for all other work of this broker."""

PreparedTopics: TypeAlias = tuple[int, Mapping[str, ServedTopic]]
"""The step that makes them the present ones, and topics by name."""
NOTHING_PREPARED: Final[PreparedTopics] = (0, {})

Show = Callable[[Collection[str]], Iterable[str]]


class ClusterMetadataCache:
    """The latest metadata from the controller; version 0 means none yet.

    `controller` is what clients are told, `active_controller` has its internal address, too.

    Owned by the event loop.
    """

    def __init__(self) -> None:
        self.version = 0
        self.cluster_id = ""
        self.controller: ControllerInfo | None = None
        self.active_controller: ControllerRow | None = None
        self.brokers: dict[int, BrokerInfo] = {}
        # In the order of their last change, so that changes are found without looking at all.
        self._topics: OrderedDict[str, ServedTopic] = OrderedDict()
        self._history = MetadataHistory()
        self._document: bytes | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self.is_stopped = False

    @property
    def tag(self) -> MetadataTag | None:
        """The tag of what is served; None before the first metadata."""
        if not self.version or self.controller is None:
            return None
        return MetadataTag(self.controller.epoch, self.version)

    async def prepare(self, request: UpdateMetadataRequest) -> PreparedTopics:
        """Make in turns what `apply` puts in the place of the present topics.

        100,000 rows take 0.1 s. If anything is applied before it, all of it is made again then.
        """
        step, full = self._history.step + 1, request.full
        prepared: dict[str, ServedTopic] = {}
        async for some in in_turns(parts(request.topics, _rows_of, _ROWS_AT_ONCE)):
            for topic in some:
                known = self._topics.get(topic.topic)
                prepared[topic.topic] = _served(topic, step, known, full=full)
        return step, prepared

    def apply(
        self, request: UpdateMetadataRequest, prepared: PreparedTopics = NOTHING_PREPARED
    ) -> int:
        """Apply a request of the controller and return the version now served.

        `prepared` is made of this request.

        Raises:
            StaleVersion: the request is older than what is served, or is a delta to another
                version. Nothing changed; the controller then sends the full metadata.

        """
        if request.version < self.version:
            raise StaleVersion(f"version {self.version} is served", version=self.version)
        if not request.full and request.base_version != self.version:
            raise StaleVersion(
                f"a delta to version {request.base_version}, but {self.version} is served",
                version=self.version,
            )
        self._apply(request, prepared)
        return self.version

    def _apply(self, request: UpdateMetadataRequest, prepared: PreparedTopics) -> None:
        tag = MetadataTag(request.controller.epoch, request.version)
        step = self._history.advance(tag, full=request.full)
        deleted: Iterable[str] = request.deleted
        if request.full:
            wanted = {topic.topic for topic in request.topics}
            deleted = [name for name in self._topics if name not in wanted]
        for name in deleted:
            self._topics.pop(name, None)
            self._history.note_deleted(name)
        ready = prepared[1] if prepared[0] == step else {}
        for topic in request.topics:
            known = self._topics.get(topic.topic)
            served = ready.get(topic.topic) or _served(topic, step, known, full=request.full)
            self._replace(topic.topic, known, served)
        self.cluster_id = request.cluster_id
        self.active_controller = request.controller
        self.controller = ControllerInfo(
            request.controller.id, request.controller.url, request.controller.epoch
        )
        self.brokers = {
            row.id: BrokerInfo(row.id, row.url, row.rack, row.incarnation)
            for row in request.brokers
        }
        self.version = request.version
        self._document = None
        self._wake()

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    def stop(self) -> None:
        """End all waits, also those that begin later: the broker is about to stop."""
        self.is_stopped = True
        self._wake()

    def _replace(self, name: str, known: ServedTopic | None, served: ServedTopic) -> None:
        if served is known:
            return
        self._topics[name] = served
        if known is None:
            self._history.note_present(name)
        else:
            self._topics.move_to_end(name)

    async def encode_topics(self) -> None:
        """Encode in turns what `document` joins: that of 100,000 partitions takes 0.2 s."""
        due = [(name, topic) for name, topic in self._topics.items() if not topic.is_encoded]
        async for some in in_turns(parts(due, _rows, _ROWS_AT_ONCE)):
            for name, topic in some:
                topic.fragment(name)

    def document(self, topics: Iterable[str] | None = None) -> bytes:
        """Return the metadata document as JSON, of all topics or of the given ones.

        Unknown topics are omitted.
        """
        if topics is not None:
            return self._encode({t: self._topics[t] for t in topics if t in self._topics})
        if self._document is None:
            self._document = self._encode(self._topics)
        return self._document

    def _encode(self, topics: Mapping[str, ServedTopic]) -> bytes:
        fragments = b",".join(topics[name].fragment(name) for name in sorted(topics))
        return b'%s,"topics":{%s}}' % (self._head(), fragments)

    def _head(self) -> bytes:
        """Return the start of a document: everything before its topics."""
        head = {
            "cluster_id": self.cluster_id,
            "version": self.version,
            "controller": self.controller,
            "brokers": [self.brokers[broker] for broker in sorted(self.brokers)],
        }
        return _json(head)[:-1]

    async def changes(self, base: MetadataTag, show: Show) -> tuple[MetadataTag, bytes] | None:
        """Return what has changed since a state as JSON, with the tag of the state after it.

        None: only the whole document can tell. `show` returns those of some names of topics that
        the caller asks for and may see. The cost grows with the changes, not with the topics. The
        answer is encoded in turns, of one state: topics are replaced, they do not change.
        """
        since, tag = self._history.since(base), self.tag
        if since is None or tag is None:
            return None
        head, deleted = self._head(), self._history.deleted_since(since.step)
        whole: list[bytes] = []
        rows: list[bytes] = []
        due = list(self._changed(since))
        async for some in in_turns(parts(due, _rows, _ROWS_AT_ONCE)):
            changed = dict(some)
            for name in show(changed):
                fragment, is_whole = changed[name].changes(name, since)
                if fragment:
                    (whole if is_whole else rows).append(fragment)
        return tag, b'%s,"topics":{%s},"changed_after":%s,"changed_rows":{%s},%s}' % (
            head,
            b",".join(whole),
            _json(str(base)),
            b",".join(rows),
            b'"deleted_topics":%s' % _json(sorted(show(deleted))),
        )

    def _changed(self, since: ChangesSince) -> Iterator[tuple[str, ServedTopic]]:
        for name in reversed(self._topics):
            topic = self._topics[name]
            if topic.changed_in <= since.step:
                return
            yield name, topic

    async def wait_newer(self, after: int, timeout_ms: int) -> bool:
        """Wait until the version exceeds `after`; return whether it does."""
        return await self._until(lambda: self.version > after, timeout_ms)

    async def wait_next_controller(self, former: ControllerRow, timeout_ms: int) -> bool:
        """Wait until another controller, or the same one in another term, is active.

        Returns whether one is. Its metadata may have the version of what `former` sent.
        """
        return await self._until(lambda: self.active_controller != former, timeout_ms)

    async def _until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until a condition holds after some request, or `stop`; return whether it does."""
        with suppress(TimeoutError), CountedWait():
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition() and not self.is_stopped:
                    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.add(waiting)
                    try:
                        await waiting
                    finally:
                        self._waiting.discard(waiting)
        return condition()

    def topic_names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._topics)

    def topic_id(self, topic: str) -> str | None:
        """Return the topic's id, or None if it is unknown."""
        known = self._topics.get(topic)
        return known.topic_id if known else None

    def why_unknown(self, topic: str) -> LeadlineError:
        """Return why a topic is not here: it does not exist, or no metadata has come yet.

        A broker that has just started has no metadata for a moment, with or without its grant.
        """
        if self.tag is None:
            return BrokerFenced("the broker has no metadata from a controller yet")
        return UnknownTopic(f"topic {topic} is unknown")

    def partition_numbers(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions, sorted; empty if it is unknown."""
        known = self._topics.get(topic)
        return sorted(known.rows) if known else []

    def partition(self, topic: str, partition: int) -> PartitionRow | None:
        """Return the row of a partition, or None if it is unknown."""
        known = self._topics.get(topic)
        return known.rows.get(partition) if known else None


def _served(topic: TopicRows, step: int, known: ServedTopic | None, *, full: bool) -> ServedTopic:
    """Return a topic as it is served after a step; the known one if the full state is the same."""
    if full and known is not None and known.equals(topic):
        return known
    return ServedTopic(topic, step, known)


def _rows_of(topic: TopicRows) -> int:
    return 1 + len(topic.partitions)


def _rows(topic: tuple[str, ServedTopic]) -> int:
    """Return about how many rows take as long to encode as this topic: its own, and its name."""
    return 1 + len(topic[1].rows)
