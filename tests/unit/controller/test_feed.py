"""A reader of the change feed knows the state of the cluster, from any starting version."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from leadline_common.metadata_tags import MetadataTag
from leadline_common.znodes import PartitionState, TopicAssignment
from leadline_controller.domain.cluster import (
    BrokerDown,
    BrokerUp,
    Change,
    ClusterImage,
    ConfigsSet,
    DeletionPending,
    StateSet,
    TopicGone,
    TopicSet,
)
from leadline_controller.domain.feed import (
    BrokersSnapshot,
    ChangeFeed,
    FeedEvent,
    TopicDeleted,
    TopicDelta,
    TopicNames,
    TopicSnapshot,
)
from tests.unit.controller.images import TOPIC, broker, cluster, state


class Reader:
    """Applies the events that it receives."""

    def __init__(self) -> None:
        self.brokers: dict[int, object] = {}
        self.topics: dict[str, TopicSnapshot] = {}

    def take(self, news: Iterable[FeedEvent]) -> None:
        for one in news:
            match one:
                case BrokersSnapshot():
                    self.brokers = {b.id: b for b in one.brokers}
                case TopicNames():
                    self.topics = {n: t for n, t in self.topics.items() if n in one.topics}
                case TopicSnapshot():
                    self.topics[one.topic] = one
                case TopicDeleted():
                    self.topics.pop(one.topic, None)
                case TopicDelta():
                    known = self.topics[one.topic]
                    partitions = {**known.partitions, **one.partitions}
                    for number in one.removed:
                        del partitions[number]
                    configs = known.configs if one.configs is None else one.configs
                    self.topics[one.topic] = TopicSnapshot(
                        one.topic, one.topic_id, configs, dict(sorted(partitions.items()))
                    )


def truth(image: ClusterImage) -> dict[str, TopicSnapshot]:
    return {
        topic.name: TopicSnapshot(
            topic.name, topic.topic_id, topic.configs, dict(topic.active_partitions)
        )
        for topic in image.topics.values()
        if not topic.deleting
    }


START = MetadataTag(0, 0)


def successor_of(image: ClusterImage) -> ClusterImage:
    """Return what the next controller loads: only what exists."""
    loaded = ClusterImage(controller_epoch=image.controller_epoch + 1)
    for topic in image.topics.values():
        assignment = TopicAssignment(
            topic.topic_id, {n: p.replicas for n, p in topic.partitions.items()}
        )
        loaded.apply([TopicSet(topic.name, assignment, topic.version)])
        loaded.apply([ConfigsSet(topic.name, dict(topic.configs), topic.configs_version)])
        states = [(n, p.state, p.version) for n, p in topic.partitions.items() if p.state]
        loaded.apply([StateSet(topic.name, n, state, at) for n, state, at in states])
        if topic.deleting:
            loaded.apply([DeletionPending(topic.name)])
    loaded.apply([BrokerUp(one) for one in image.brokers.values()])
    return loaded


NAMES = st.sampled_from(["a", "b"])
CHANGES = st.one_of(
    st.builds(lambda b: BrokerUp(broker(b)), st.integers(1, 3)),
    st.builds(BrokerDown, st.integers(1, 3)),
    st.builds(
        lambda name, topic_id, count, version: TopicSet(
            name, TopicAssignment(topic_id, dict.fromkeys(range(count), (1, 2))), version
        ),
        NAMES,
        st.sampled_from(["id-1", "id-2"]),
        st.integers(1, 3),
        st.integers(0, 5),
    ),
    st.builds(
        lambda name, p, leader, version: StateSet(
            name, p, PartitionState(leader, version, (leader,), 1), version
        ),
        NAMES,
        st.integers(0, 2),
        st.integers(1, 2),
        st.integers(0, 5),
    ),
    st.builds(
        lambda name, ms: ConfigsSet(name, {"retention.ms": ms}), NAMES, st.sampled_from("12")
    ),
    st.builds(DeletionPending, NAMES),
    st.builds(TopicGone, NAMES),
)


@given(st.lists(st.lists(CHANGES, max_size=3), max_size=12), st.data())
def test_a_reader_knows_the_current_state(story: list[list[Change]], data: st.DataObject) -> None:
    image = ClusterImage()
    reader, feed = Reader(), ChangeFeed(image, START)
    for changes in story:
        image.apply(changes)
        if data.draw(st.booleans(), label="looks"):
            reader.take(feed.poll())
        if data.draw(st.booleans(), label="is cut off, and comes again"):
            feed = ChangeFeed(image, feed.position)
        if data.draw(st.booleans(), label="another controller follows"):
            image = successor_of(image)
            feed = ChangeFeed(image, feed.position)
    reader.take(feed.poll())
    assert reader.topics == truth(image)
    assert reader.brokers == image.brokers
    assert feed.version == image.version
    assert feed.poll() == []


def test_only_the_changed_partition_is_sent() -> None:
    image = cluster({1, 2}, {0: (1, 2), 1: (1, 2)}, {0: state(1, (1, 2)), 1: state(1, (1, 2))})
    feed = ChangeFeed(image, START)
    feed.poll()
    image.apply([StateSet(TOPIC, 1, state(2, (2,), epoch=5), 4)])
    (changed,) = feed.poll()
    assert isinstance(changed, TopicDelta)
    assert changed.partitions.keys() == {1}
    assert (changed.configs, changed.removed) == (None, ())


def test_a_reader_without_a_version_gets_only_later_changes() -> None:
    image = cluster({1}, {0: (1,)})
    feed = ChangeFeed(image, None)
    assert feed.poll() == []
    image.apply([BrokerDown(1)])
    assert [type(one) for one in feed.poll()] == [BrokersSnapshot]


def test_a_reader_that_was_told_nothing_yet_is_where_it_was() -> None:
    earlier = MetadataTag(3, 5)
    feed = ChangeFeed(cluster({1}, {0: (1,)}), earlier)
    assert feed.position == earlier
    feed.poll()
    assert feed.position.controller_epoch != earlier.controller_epoch
