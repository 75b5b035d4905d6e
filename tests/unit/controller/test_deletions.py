"""The end of a topic's deletion (rule R12); the integration tests have one with brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leadline_common.znodes import TopicAssignment, encode_topic
from leadline_controller.domain.cluster import ClusterImage, DeletionPending, TopicSet
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.engine.event_queue import EventQueue
from leadline_controller.runtime.topics.deletions import DeletionManager, TopicStopped
from tests.support.manual_clock import ManualClock
from tests.unit.controller.images import TOPIC, cluster


class Deleting(Exception):
    """Nodes are about to be deleted."""


class Nodes:
    """A `ControllerStore` with the node of one topic, which tells when its states are listed."""

    def __init__(self, topic_id: str) -> None:
        self._topic = encode_topic(TopicAssignment(topic_id, {0: (1,)}))

    async def read_nodes(self, paths: list[str]) -> list[ReadNode]:
        return [ReadNode(self._topic, 0, 0) for _ in paths]

    async def children(self, paths: list[str]) -> list[list[str]]:
        raise Deleting(paths)


def manager(image: ClusterImage, topic_id: str) -> DeletionManager:
    """Return what deletes topics of which every broker has deleted its replicas."""
    nothing: Any = None
    store: Any = Nodes(topic_id)
    brokers: Any = SimpleNamespace(is_stopped=lambda _: True)
    queue = EventQueue(ManualClock(0))
    return DeletionManager(store, image, queue, nothing, brokers, nothing, nothing, nothing)


async def test_the_nodes_of_a_topic_that_is_being_deleted_are_deleted_at_the_end() -> None:
    image = cluster([1], {0: (1,)})
    image.apply([DeletionPending(TOPIC, 3)])
    with pytest.raises(Deleting):
        await manager(image, "id-1").on_stopped(TopicStopped(TOPIC, "id-1"))


async def test_the_end_of_a_deletion_is_not_that_of_the_topic_that_has_followed() -> None:
    image = cluster([1], {0: (1,)})
    image.apply([DeletionPending(TOPIC, 3)])
    image.apply([TopicSet(TOPIC, TopicAssignment("id-2", {0: (1,)}), 0, zxid=4)])
    await manager(image, "id-2").on_stopped(TopicStopped(TOPIC, "id-1"))
    assert image.topics[TOPIC].topic_id == "id-2"
