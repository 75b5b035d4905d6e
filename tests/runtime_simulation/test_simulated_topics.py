"""What the simulator knows of topics, and what it reports of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.znodes import PartitionState, TopicAssignment
from tests.runtime_simulation.topics import Topics
from tests.runtime_simulation.world import World
from tests.runtime_simulation.zookeeper import ZooKeeper
from tests.runtime_simulation.zookeeper_tree import Transaction

_ANY = -1


@pytest.fixture
def topics() -> Iterator[Topics]:
    """The topics of a ZooKeeper that has topic t with the id "a", and its parents."""
    world = World(1)
    topics = Topics(world, ZooKeeper(world))
    change = topics.zookeeper.tree.begin()
    for path in ("/brokers", znodes.TOPICS, "/admin", znodes.DELETE_TOPICS):
        create(change, path, b"")
    create(change, znodes.topic_path("t"), znodes.encode_topic(TopicAssignment("a", {0: (1,)})))
    topics.zookeeper.committed(change.commit())
    yield topics
    world.loop.close()


def create(change: Transaction, path: str, data: bytes) -> None:
    change.create(path, data, 0, 0, sequence=False)


def state(epoch: int) -> bytes:
    return znodes.encode_state(PartitionState(1, epoch, (1,), 1))


def write_state(topics: Topics, epoch: int) -> None:
    """Create the state node of partition 0, whose parents are not of interest here."""
    change = topics.zookeeper.tree.begin()
    path = znodes.state_path("t", 0)
    for parent in (path.rsplit("/", 2)[0], path.rsplit("/", 1)[0]):
        if topics.zookeeper.tree.now(parent) is None:
            create(change, parent, b"")
    create(change, path, state(epoch))
    topics.zookeeper.committed(change.commit())


def order_deletion(topics: Topics, topic_id: str) -> None:
    change = topics.zookeeper.tree.begin()
    create(change, znodes.delete_topic_path("t"), topic_id.encode())
    topics.zookeeper.committed(change.commit())


def delete(topics: Topics, *paths: str) -> None:
    change = topics.zookeeper.tree.begin()
    for path in paths:
        change.delete(path, _ANY)
    topics.zookeeper.committed(change.commit())


def test_a_topic_may_be_deleted_with_its_tombstone(topics: Topics) -> None:
    order_deletion(topics, "a")

    delete(topics, znodes.topic_path("t"), znodes.delete_topic_path("t"))

    assert (topics.ever, topics.problems) == ({"t": ["a"]}, [])


@pytest.mark.parametrize("ordered", ["", "b"], ids=["no tombstone", "that of another topic"])
def test_a_topic_that_is_deleted_unasked_is_reported(topics: Topics, ordered: str) -> None:
    if ordered:
        order_deletion(topics, ordered)

    delete(topics, znodes.topic_path("t"))

    assert topics.problems == ["R12: t a was deleted unasked"]


def test_a_partition_that_is_added_again_is_another_one(topics: Topics) -> None:
    partition = TopicPartition("t", 0)
    write_state(topics, 0)
    first = topics.name_now(partition)
    delete(topics, znodes.state_path(*partition))
    between = topics.name_now(partition)
    write_state(topics, 5)

    second = topics.name_now(partition)

    assert (first, between, second) == ("t a", "", "t a, added again 1")
    assert [topics.name_at(partition, "a", epoch) for epoch in (0, 4, 5, 9)] == [
        first,
        first,
        second,
        second,
    ]
