"""Which topics there are: read from ZooKeeper, watched, and compared every few seconds (seed 3 C).

Watches are hints (rule R8): on `/brokers/topics` for topics that come and go, on the
node of each topic that some group is interested in for its partitions. Whatever they
say, everything is read again at intervals, and only what differs is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from leadline_common.zk.errors import ConnectionLoss
from leadline_coordinator.domain.records import TopicFacts
from leadline_coordinator.runtime.context import CoordinatorContext

_log = logging.getLogger(__name__)


class TopicListeners:
    """The topics of the cluster. `counts` is changed in place: groups look into it.

    `told(changed, gone)` hears of topics that are not as they were; `gone` says of those
    among them that have lost partitions from which number on: from 0 where the topic was
    deleted, or made anew under another id.
    """

    def __init__(
        self,
        context: CoordinatorContext,
        told: Callable[[Collection[str], Mapping[str, int]], None],
        interesting: Callable[[Iterable[str]], set[str]],
    ) -> None:
        self.topics: dict[str, TopicFacts] = {}
        self.counts: dict[str, int] = {}
        self._context = context
        self._told = told
        self._interesting = interesting
        self._woken = asyncio.Event()
        self._watched: dict[str, Callable[[], None]] = {}
        self._armed: set[str] = set()

    def ids(self) -> dict[str, str]:
        """Return the ids of the topics."""
        return {name: facts.topic_id for name, facts in self.topics.items()}

    def hint(self) -> None:
        """Have everything read again soon."""
        self._woken.set()

    def look_again(self) -> None:
        """Have everything read again soon; watches may have been lost."""
        self._armed.clear()
        self._woken.set()

    async def read(self) -> None:
        """Read all topics; tell of those that have changed."""
        names = await self._context.store.topic_names(self._woken.set)
        wanted = self._interesting(names) - self._armed
        self._armed |= wanted
        watches = {name: self._watch_of(name) for name in wanted}
        found = await self._context.store.read_topics(names, watches)
        for name in names:  # a topic that cannot be read is not for that reason deleted
            if name not in found and name in self.topics:
                found[name] = self.topics[name]
        self._take(found)

    async def run(self) -> None:
        """Read again at every hint, and at intervals.

        Raises:
            SessionExpired: the session is over.

        """
        interval_s = self._context.settings.group_topics_interval_ms / 1000
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                await self.read()
            except ConnectionLoss:
                _log.info("topics could not be read; the connection to ZooKeeper is lost")

    def _take(self, found: dict[str, TopicFacts]) -> None:
        before, self.topics = self.topics, found
        changed = {
            name for name in before.keys() | found.keys() if before.get(name) != found.get(name)
        }
        for name in changed:
            if name in found:
                self.counts[name] = found[name].partitions
            else:
                self.counts.pop(name, None)
        gone = {
            name: left
            for name in changed & before.keys()
            if (left := _left_of(before[name], found.get(name))) < before[name].partitions
        }
        if changed:
            self._told(changed, gone)

    def _watch_of(self, topic: str) -> Callable[[], None]:
        """Return the one callback for a topic: the client keeps one watch for each."""

        def on_topic_partition_change() -> None:
            self._armed.discard(topic)
            self._woken.set()

        return self._watched.setdefault(topic, on_topic_partition_change)


def _left_of(before: TopicFacts, now: TopicFacts | None) -> int:
    """Return how many partitions are still those of before."""
    return now.partitions if now is not None and now.topic_id == before.topic_id else 0
