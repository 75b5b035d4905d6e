"""The topics of the cluster, read from ZooKeeper, watched, and read again at intervals.

Consumer Coordinator design, section C. Watches are hints (rule R8): one on
`/brokers/topics` for topics that appear and disappear, and one on the node of each
subscribed topic for its partitions. Everything is also read at intervals, and only
differences are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from leadline_common.zk.errors import ConnectionLoss
from leadline_coordinator.domain.records import TopicState
from leadline_coordinator.runtime.context import CoordinatorContext

logger = structlog.get_logger(__name__)


@dataclass(eq=False)
class TopicListeners:
    """The topics of the cluster.

    `counts` and `topic_ids` are changed in place, because groups hold references. `unreadable`
    are topics that exist, but whose state was never readable.

    `on_change(changed, gone)` is called with the topics that changed. `gone` maps those of
    them that lost partitions to the first lost one: 0 if the topic was deleted, or deleted
    and recreated under another id. `subscribed` returns those of some topics to watch.
    """

    _context: CoordinatorContext
    _on_change: Callable[[Collection[str], Mapping[str, int]], None]
    _subscribed: Callable[[Iterable[str]], set[str]]
    topics: dict[str, TopicState] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    _triggered: asyncio.Event = field(default_factory=asyncio.Event)
    _callbacks: dict[str, Callable[[], None]] = field(default_factory=dict)
    _watched: set[str] = field(default_factory=set)

    def trigger(self) -> None:
        """Read everything again soon."""
        self._triggered.set()

    def invalidate(self) -> None:
        """Read everything again soon, and set all watches again: they may be lost."""
        self._watched.clear()
        self._triggered.set()

    async def read(self) -> None:
        """Read all topics, and report the changed ones."""
        store = self._context.store
        names = await store.topic_names(self._triggered.set)
        self._forget_all_but(names)
        unwatched = self._subscribed(names) - self._watched
        self._watched |= unwatched
        watches = {name: self._callback_of(name) for name in unwatched}
        found = await store.read_topics(names, watches)
        for name in names:  # an unreadable topic is not a deleted one
            if name not in found and name in self.topics:
                found[name] = self.topics[name]
        self.unreadable = frozenset(names) - found.keys()
        self._apply_read(found)

    async def run(self) -> None:
        """Read again at every trigger, and at intervals.

        Raises:
            SessionExpired: the session is over.

        """
        interval_s = self._context.settings.group_topics_interval_ms / 1000
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._triggered.wait()
            self._triggered.clear()
            try:
                await self.read()
            except ConnectionLoss as problem:
                logger.info("could not read topics", reason=str(problem))

    def _apply_read(self, found: dict[str, TopicState]) -> None:
        before, self.topics = self.topics, found
        changed = {
            name for name in before.keys() | found.keys() if before.get(name) != found.get(name)
        }
        self.counts.clear()
        self.counts.update({name: state.partitions for name, state in found.items()})
        self.topic_ids.clear()
        self.topic_ids.update({name: state.topic_id for name, state in found.items()})
        gone = {
            name: left
            for name in changed & before.keys()
            if (left := _left_of(before[name], found.get(name))) < before[name].partitions
        }
        if changed:
            self._on_change(changed, gone)

    def _forget_all_but(self, names: Collection[str]) -> None:
        """Forget the watches of topics that are gone; one that comes late causes one more read."""
        present = set(names)
        self._watched &= present
        for name in self._callbacks.keys() - present:
            del self._callbacks[name]

    def _callback_of(self, topic: str) -> Callable[[], None]:
        """Return a topic's callback, always the same, so that kazoo keeps one watch."""

        def on_topic_partition_change() -> None:
            self._watched.discard(topic)
            self._triggered.set()

        return self._callbacks.setdefault(topic, on_topic_partition_change)


def _left_of(before: TopicState, now: TopicState | None) -> int:
    """Return how many partitions are still those of `before`."""
    return 0 if now is None else now.left_of(before)
