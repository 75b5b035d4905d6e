"""Reads about very many partitions leave turns of the event loop to everybody else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_common.elections import StopRisk
from leadline_common.slices import SLICE
from leadline_common.znodes import TopicAssignment
from leadline_controller.api.administration import ControllerAdministration
from leadline_controller.api.views import COUNTED_AT_ONCE
from leadline_controller.domain.cluster import (
    BrokerDown,
    ClusterImage,
    StateSet,
    TopicGone,
    TopicSet,
)
from tests.support.turns import answer_and_turns
from tests.unit.controller.images import TOPIC, cluster, state

TOPICS = 40
EACH = COUNTED_AT_ONCE // 10
LARGE = 8 * SLICE


def image_of_many() -> ClusterImage:
    """Return an image of many topics, and a large one; broker 1 leads all, and 2 follows."""
    numbers = range(LARGE)
    image = cluster(
        {1, 2}, dict.fromkeys(numbers, (1, 2)), dict.fromkeys(numbers, state(1, (1, 2)))
    )
    for topic in (f"t{number}" for number in range(TOPICS)):
        assignment = TopicAssignment(f"id-{topic}", dict.fromkeys(range(EACH), (1, 2)))
        image.apply([TopicSet(topic, assignment, 0, 2)])
        image.apply([StateSet(topic, number, state(1, (1,)), 3, 10) for number in range(EACH)])
    return image


def administration_of(image: ClusterImage) -> ControllerAdministration:
    """Return the administration of a controller with this image."""
    controller = SimpleNamespace(
        image=lambda: image,
        cluster_id=lambda: "c",
        active=None,
        broker=image.brokers.__getitem__,
        topic=image.topics.__getitem__,
    )
    return ControllerAdministration(cast("Any", controller), cast("Any", None))


async def test_brokers_are_counted_in_turns() -> None:
    body, turns = await answer_and_turns(administration_of(image_of_many()).brokers())

    partitions = LARGE + TOPICS * EACH
    assert turns > 2 * partitions / (COUNTED_AT_ONCE + EACH)
    counts = [(one.id, one.leaders, one.replicas, one.misplaced) for one in body.brokers]
    assert counts == [(1, partitions, partitions, 0), (2, 0, partitions, 0)]


async def test_whether_a_broker_can_stop_is_told_in_turns() -> None:
    body, turns = await answer_and_turns(administration_of(image_of_many()).can_stop(1))

    assert turns >= (LARGE + TOPICS * EACH) / SLICE
    totals = {row.reason: (row.total, len(row.partitions)) for row in body.reasons}
    assert totals == {
        StopRisk.NO_SUCCESSOR: (TOPICS * EACH, 20),
        StopRisk.BELOW_MIN_INSYNC: (LARGE, 20),
    }


async def test_the_cluster_and_its_topics_are_summed_up_in_turns() -> None:
    administration = administration_of(image_of_many())
    cluster_body, turns = await answer_and_turns(administration.cluster())
    topics_body, topic_turns = await answer_and_turns(administration.topics())

    assert min(turns, topic_turns) > 4
    assert (cluster_body.topics, cluster_body.partitions) == (TOPICS + 1, LARGE + TOPICS * EACH)
    assert cluster_body.under_replicated_partitions == TOPICS * EACH
    assert [one.name for one in topics_body.topics] == sorted(
        one.name for one in topics_body.topics
    )
    assert {one.under_replicated_partitions for one in topics_body.topics} == {0, EACH}


@pytest.mark.parametrize("route", ["topic", "partitions"])
async def test_a_large_topic_is_shown_in_turns_as_it_was_in_the_first(route: str) -> None:
    image = image_of_many()
    read = getattr(administration_of(image), route)

    def change_everything() -> None:
        image.apply([StateSet(TOPIC, n, state(2, (2,), 5), 4, 20) for n in range(LARGE)])
        image.apply([BrokerDown(1, 21), TopicGone(TOPIC, 22)])

    body, turns = await answer_and_turns(read(TOPIC), change_everything)

    assert turns >= LARGE / SLICE
    assert [one.partition for one in body.partitions] == list(range(LARGE))
    assert {(one.leader, one.leader_epoch, *one.isr) for one in body.partitions} == {(1, 4, 1, 2)}


async def test_a_topic_that_goes_while_brokers_are_counted_is_left_out() -> None:
    image = image_of_many()
    going = image.topics[f"t{TOPICS - 1}"]
    body, _ = await answer_and_turns(
        administration_of(image).broker(2), lambda: image.apply([TopicGone(going.name, 20)])
    )
    assert body.replicas == LARGE + (TOPICS - 1) * EACH
