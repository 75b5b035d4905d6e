"""What the coordinator keeps of topics goes with the topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from leadline_coordinator.domain.records import TopicState
from leadline_coordinator.runtime.context import CoordinatorContext
from leadline_coordinator.runtime.topics import TopicListeners


@dataclass
class Topics:
    """The topics in ZooKeeper, all of them subscribed, and the watches on their nodes."""

    names: list[str] = field(default_factory=list)
    watches: dict[str, Callable[[], None]] = field(default_factory=dict)

    @property
    def store(self) -> Topics:
        return self

    def listeners(self) -> TopicListeners:
        def on_change(_: Collection[str], __: Mapping[str, int]) -> None:
            """Tell nobody."""

        def subscribed(topics: Iterable[str]) -> set[str]:
            return set(topics)

        return TopicListeners(cast("CoordinatorContext", self), on_change, subscribed)

    async def topic_names(self, _: object) -> list[str]:
        return list(self.names)

    async def read_topics(
        self, names: Sequence[str], watches: Mapping[str, Callable[[], None]]
    ) -> dict[str, TopicState]:
        self.watches |= watches
        return {name: TopicState(f"id of {name}", 1) for name in names}


async def test_nothing_is_kept_of_deleted_topics() -> None:
    zookeeper = Topics()
    listeners = zookeeper.listeners()
    for number in range(100):
        zookeeper.names = ["kept", f"topic-{number}"]
        await listeners.read()
    zookeeper.names = ["kept"]
    await listeners.read()

    for kept in (listeners._callbacks, listeners._watched, listeners.topics, listeners.counts):
        assert set(kept) == {"kept"}


async def test_a_topic_that_is_created_again_is_watched_again() -> None:
    zookeeper = Topics(["orders"])
    listeners = zookeeper.listeners()
    await listeners.read()
    before = zookeeper.watches.pop("orders")
    zookeeper.names = []
    await listeners.read()
    zookeeper.names = ["orders"]
    await listeners.read()

    assert "orders" in zookeeper.watches
    before()  # the watch on the deleted node comes late
    await listeners.read()
    assert listeners._watched == {"orders"}


async def test_a_topic_has_one_callback() -> None:
    zookeeper = Topics(["orders"])
    listeners = zookeeper.listeners()
    await listeners.read()
    first = zookeeper.watches["orders"]
    first()
    await listeners.read()
    assert zookeeper.watches["orders"] is first
