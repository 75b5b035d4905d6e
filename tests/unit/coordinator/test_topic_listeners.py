"""What the coordinator keeps of topics goes with the topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.znodes import TopicAssignment
from leadline_coordinator.adapters.group_values import offset_of, offset_value
from leadline_coordinator.adapters.zk_store import ZkCoordinatorStore
from leadline_coordinator.domain.commits import first_epoch, is_outdated
from leadline_coordinator.domain.records import CommittedOffset, TopicState
from leadline_coordinator.runtime.context import CoordinatorContext
from leadline_coordinator.runtime.topics import TopicListeners


@dataclass
class Topics:
    """The topics in ZooKeeper, all of them subscribed, and the watches on their nodes."""

    names: list[str] = field(default_factory=list)
    watches: dict[str, Callable[[], None]] = field(default_factory=dict)
    state: TopicState | None = None

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
        return {name: self.state or TopicState(f"id of {name}", 1) for name in names}


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


async def test_defect_34_a_partition_that_was_added_again_unseen_is_another_one() -> None:
    """It was removed and added between two looks at its topic, or while nobody looked."""
    zookeeper, gone = Topics(["orders"]), list[Mapping[str, int]]()
    listeners = zookeeper.listeners()
    listeners._on_change = lambda _, lost: gone.append(lost)
    zookeeper.state = TopicState("id", 3)
    await listeners.read()
    zookeeper.state = TopicState("id", 3, {1: 4, 2: 5})
    await listeners.read()
    zookeeper.state = TopicState("id", 3, {1: 4, 2: 7})
    await listeners.read()
    zookeeper.state = TopicState("id", 4, {1: 4, 2: 7})
    await listeners.read()

    assert gone == [{}, {"orders": 1}, {"orders": 2}, {}]


@pytest.mark.parametrize(
    ("leader_epoch", "outdated"), [(3, True), (4, False), (None, False), (-1, False)]
)
def test_defect_34_an_offset_of_the_partition_before_is_outdated(
    leader_epoch: int | None, outdated: bool
) -> None:
    topics = {"orders": TopicState("id", 2, {1: 4})}
    committed = CommittedOffset(50, 0, leader_epoch, topic_id="id")

    assert is_outdated(topics, TopicPartition("orders", 1), committed) is outdated
    assert not is_outdated(topics, TopicPartition("orders", 0), committed)


@pytest.mark.parametrize("leader_epoch", [None, -1])
def test_defect_49_an_offset_without_an_epoch_tells_of_which_partition_it_is(
    leader_epoch: int | None,
) -> None:
    """A coordinator that is elected after a partition was added again knows nothing else of it."""
    partition, before, now = TopicPartition("orders", 1), TopicState("id", 2), {1: 4}
    topics = {"orders": TopicState("id", 2, now)}

    def stored(first: int | None) -> CommittedOffset:
        committed = CommittedOffset(50, 0, leader_epoch, topic_id="id", first_epoch=first)
        found = offset_of(offset_value(committed), "/offset")
        assert found == committed
        return found

    former = stored(first_epoch(before, 1, leader_epoch))
    assert is_outdated(topics, partition, former)
    assert not is_outdated({"orders": before}, partition, former)
    assert not is_outdated(topics, partition, stored(first_epoch(topics["orders"], 1, None)))
    assert not is_outdated(topics, partition, stored(None)), "of an earlier release"
    assert first_epoch(before, 1, 0) is None, "the offset's own epoch tells"


async def test_defect_34_the_store_tells_with_which_epochs_partitions_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read_all(_: object, __: object) -> list[TopicAssignment]:
        return [TopicAssignment("id", {0: (1,), 1: (1,)}, first_epochs={1: 4})]

    store = ZkCoordinatorStore()
    monkeypatch.setattr(store, "_read_all", read_all)

    assert await store.read_topics(["orders"], {}) == {"orders": TopicState("id", 2, {1: 4})}
