"""Elections of very many partitions leave turns of the event loop to everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.api import models
from leadline_common.computing import Computer
from leadline_common.slices import SLICE
from leadline_common.znodes import TopicAssignment
from leadline_controller.api.administration import ControllerAdministration
from leadline_controller.domain.cluster import ClusterImage, StateSet, TopicSet
from leadline_controller.domain.failover import StateDecision, elect_preferred
from leadline_controller.domain.leader_imbalance import LeaderImbalance
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.engine.events import Reply
from leadline_controller.runtime.topics.elections import ElectionManager, ElectLeaders
from tests.unit.controller.images import TOPIC, cluster, state
from tests.unit.controller.test_balance import non_preferred_leaders

MANY = 8 * SLICE
ALL = [TopicPartition(TOPIC, number) for number in range(MANY)]


def image_of_many() -> ClusterImage:
    """Return an image in which broker 1 should lead all partitions, and broker 2 does."""
    led_by_2 = dict.fromkeys(range(MANY), state(2, (2, 1)))
    return cluster({1, 2}, dict.fromkeys(range(MANY), (1, 2)), led_by_2)


class Publisher:
    """Notes the decisions that it is given."""

    def __init__(self) -> None:
        self.written: list[StateDecision] = []

    async def write(self, decisions: list[StateDecision], *_: Any, **__: Any) -> Any:
        """Note the decisions, and return them."""
        self.written += decisions
        return decisions


def manager_of(image: ClusterImage, publisher: Publisher) -> ElectionManager:
    """Return a manager that finds an intent to elect leaders of everything."""

    async def watched_node(*_: Any) -> ReadNode:
        return ReadNode(b"", 3, 7)

    async def commit(*_: Any) -> None:
        """Write nothing."""

    settings = SimpleNamespace(
        auto_leader_rebalance_enable=True, leader_imbalance_per_broker_percentage=10
    )
    given: list[Any] = [
        SimpleNamespace(watched_node=watched_node),
        image,
        None,
        SimpleNamespace(current=lambda: settings),
        SimpleNamespace(commit=commit),
        publisher,
        SimpleNamespace(entry=lambda *_, **__: None),
        None,
    ]
    return ElectionManager(*given)


async def turns_during(work: Coroutine[Any, Any, Any]) -> int:
    """Return how many turns of the loop another task gets until the work is done."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


@pytest.mark.parametrize("cause", ["request", "intent", "balance"])
async def test_an_election_of_very_many_partitions_is_decided_in_turns(cause: str) -> None:
    publisher = Publisher()
    manager = manager_of(image_of_many(), publisher)
    reply: Reply[list[StateDecision]] = Reply(asyncio.get_running_loop().create_future())
    request = ElectLeaders(unclean=False, topic_partitions=None, dry_run=False)

    turns = await turns_during(
        {
            "request": lambda: manager.on_elect(request, reply),
            "intent": manager.reconcile,
            "balance": manager.on_balance,
        }[cause]()
    )

    decided = [(one.topic, one.partition, one.after.leader) for one in publisher.written]
    assert decided == [(*one, 1) for one in ALL]
    assert turns >= MANY / SLICE


async def test_leaders_are_counted_a_few_topics_in_each_turn() -> None:
    image = ClusterImage(controller_epoch=7)
    for topic in ("a", "b", "c"):
        assignment = TopicAssignment(f"id-{topic}", dict.fromkeys(range(2_000), (1, 2)))
        image.apply([TopicSet(topic, assignment, 0, zxid=2)])
        image.apply([StateSet(topic, 0, state(1, (1, 2)), 3, 10)])
    manager = manager_of(image, Publisher())

    assert await turns_during(manager.on_balance()) >= len(image.topics)


def test_a_topic_that_is_deleted_between_the_turns_is_not_counted() -> None:
    image = image_of_many()
    imbalance = LeaderImbalance(image)

    imbalance.add([TOPIC, "gone"])

    assert imbalance.to_move(10) == non_preferred_leaders(image, 10) == ALL


async def test_the_answer_about_very_many_partitions_is_built_in_turns() -> None:
    decisions = elect_preferred(image_of_many(), ALL)

    async def ask(_: ElectLeaders) -> list[StateDecision]:
        return decisions

    answers: list[models.Elections] = []

    async def elect() -> None:
        body = models.ElectionBody(type="preferred", dry_run=True)
        answers.append(await administration.elect(body))

    administration = ControllerAdministration(cast("Any", SimpleNamespace(ask=ask)), Computer())

    assert await turns_during(elect()) >= MANY / SLICE
    (answer,) = answers
    assert [(one.topic, one.partition) for one in answer.elected] == ALL
