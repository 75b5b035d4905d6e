"""Very many reassignments are examined in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.reassignments import ReassignmentPhase
from leadline_common.settings import ControllerSettings
from leadline_common.slices import SLICE
from leadline_common.tasks import Intent
from leadline_controller.api.exports import ExportEndpoints
from leadline_controller.api.reassignments import ReassignmentEndpoints, reassignments_view
from leadline_controller.domain.cluster import ClusterImage, StateSet
from leadline_controller.domain.reassignment.batches import ReassignmentLimits
from leadline_controller.domain.reassignment.machine import Elect, Expand, Finish, Shrink, Wait
from leadline_controller.domain.reassignment.queue import (
    REFRESHED_AT_ONCE,
    DueAction,
    ReassignmentQueue,
)
from leadline_controller.runtime.reassignment.agent import ReassignmentAgent
from tests.support.turns import answer_and_turns
from tests.unit.controller.images import TOPIC, cluster, state
from tests.unit.controller.test_reassignment_queue import catch_up, write

MANY = 5 * REFRESHED_AT_ONCE


class Steps:
    """Notes the steps that are due."""

    def __init__(self) -> None:
        self.due: list[DueAction] = []

    async def write(self, due: list[DueAction]) -> bool:
        """Note the steps."""
        self.due += due
        return False


def many() -> tuple[ClusterImage, ReassignmentQueue]:
    """Return partitions that are all to move, and their queue."""
    numbers = range(MANY)
    image = cluster(
        {1, 2, 3}, dict.fromkeys(numbers, (1, 2)), dict.fromkeys(numbers, state(1, (1, 2)))
    )
    queue = ReassignmentQueue()
    for number in numbers:
        queue.put(TopicPartition(TOPIC, number), Intent((3, 2), (1, 2), task="7"), 0, number)
    return image, queue


def agent_of(image: ClusterImage, queue: ReassignmentQueue, steps: Steps) -> ReassignmentAgent:
    """Return an agent that writes nothing."""
    settings = ControllerSettings(controller_id=1, zookeeper_connect="nowhere:1")
    given: dict[str, Any] = dict.fromkeys(("store", "writer", "audit", "intents"))
    given["configs"] = SimpleNamespace(current=lambda: settings, subscribe=lambda _: None)
    given["queue"] = SimpleNamespace(
        after_event=lambda _: lambda: None,
        trigger=lambda *_: None,
        trigger_later=lambda *_: None,
    )
    return ReassignmentAgent(image=image, reassignments=queue, steps=cast("Any", steps), **given)


def active_of(image: ClusterImage, queue: ReassignmentQueue, agent: ReassignmentAgent) -> Any:
    """Return an active controller whose reassignments have copied nothing yet."""
    progress = SimpleNamespace(by_partition=dict)
    return SimpleNamespace(agent=agent, reassignments=queue, image=image, progress=progress)


@pytest.mark.parametrize("cause", ["steps", "list", "export"])
async def test_very_many_reassignments_are_examined_in_turns(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, queue = many()
    steps = Steps()
    agent = agent_of(image, queue, steps)
    examined = []
    some = ReassignmentQueue.refresh_some

    def counted(*given: Any) -> bool:
        examined.append(turns)
        return some(*given)

    monkeypatch.setattr(ReassignmentQueue, "refresh_some", counted)
    active = active_of(image, queue, agent)
    service = cast("Any", SimpleNamespace(active_controller=lambda: active, image=lambda: image))
    asked: Any = SimpleNamespace(_controller=service)
    causes: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "steps": agent.on_steps_due,
        "list": lambda: ReassignmentEndpoints.reassignments(asked, None),
        "export": lambda: exported(service),
    }
    work = asyncio.ensure_future(causes[cause]())
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    await work

    assert len(set(examined)) >= MANY / REFRESHED_AT_ONCE
    assert all(entry.state is not None for entry in queue)
    if cause == "steps":
        assert [one.topic_partition.partition for one in steps.due] == list(range(MANY))
        assert all(isinstance(one.action, Expand) for one in steps.due)


async def test_very_many_reassignments_are_described_in_turns_as_they_were_in_the_first() -> None:
    image, queue = many()
    agent = agent_of(image, queue, Steps())
    active = active_of(image, queue, agent)
    before = await reassignments_view(active, None)

    def change_everything() -> None:
        for entry in queue:
            entry.state = None

    shown, turns = await answer_and_turns(reassignments_view(active, TOPIC), change_everything)

    assert turns >= MANY / SLICE
    assert shown == before
    assert [one.partition for one in before.reassignments] == list(range(MANY))
    assert {one.state for one in (await reassignments_view(active, None)).reassignments} == {
        ReassignmentPhase.WAITING
    }


async def exported(service: Any) -> None:
    """Export the reassignments."""

    class Endpoints(ExportEndpoints):
        _controller = service

    await Endpoints().export_table("reassignments")


def test_what_changes_between_two_turns_is_examined_again() -> None:
    image, queue = many()
    limits = agent_of(image, queue, Steps()).limits

    assert queue.refresh_some(image, limits)
    image.apply([StateSet(TOPIC, 0, state(2, (2,), epoch=5), 4, 20)])
    queue.mark_changed([TopicPartition(TOPIC, 0)])
    queue.drop(TopicPartition(TOPIC, MANY - 1))
    queue.refresh(image, limits)

    assert len(queue) == MANY - 1
    assert [entry.state.leader for entry in queue if entry.state] == [2, *[1] * (MANY - 2)]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_due_follows_from_the_entries_whatever_has_happened(seed: int) -> None:
    """The window is kept while entries change; it is what a look at all of them would find."""
    random = Random(seed)
    numbers = range(40)
    image = cluster(
        {1, 2, 3, 4}, dict.fromkeys(numbers, (1, 2)), dict.fromkeys(numbers, state(1, (1, 2)))
    )
    queue, seen = ReassignmentQueue(), set[type]()
    for turn in range(300):
        limits = ReassignmentLimits(
            partition_movements=random.choice((None, 3, 12)),
            leader_movements=random.choice((None, 0, 2)),
        )
        change_something(image, queue, TopicPartition(TOPIC, random.choice(numbers)), random)
        due = queue.due(image, limits)
        assert sorted(due, key=by_partition) == expected(queue, limits)
        seen.update(type(one.action) for one in due)
        if due and turn % 2:
            write(image, random.sample(due, random.randint(1, len(due))))
            queue.mark_all_changed()
    assert seen == {Expand, Elect, Shrink, Finish}


def change_something(
    image: ClusterImage, queue: ReassignmentQueue, one: TopicPartition, random: Random
) -> None:
    """Add, change or drop a reassignment, or let its replicas catch up."""
    match random.randrange(4):
        case 0:
            queue.drop(one)
        case 1:
            catch_up(image, queue, one.partition)
        case _:
            target = tuple(random.sample(range(1, 5), 2))
            queue.put(one, Intent(target, (1, 2)), random.randrange(9), random.randrange(9))


def by_partition(due: DueAction) -> int:
    """Return the number of the partition of an action."""
    return due.topic_partition.partition


def expected(queue: ReassignmentQueue, limits: ReassignmentLimits) -> list[DueAction]:
    """Return what is due by a look at all entries."""
    counted = [one for one in queue if one.takes_place]
    counted.sort(key=lambda one: (one.request, one.topic_partition))
    movers = [one for one in counted if one.moves_leader]
    elect = movers if limits.leader_movements is None else movers[: limits.leader_movements]
    running = [
        one
        for one in queue
        if one.is_running
        and not isinstance(one.action, Wait)
        and (not isinstance(one.action, Elect) or one in elect)
    ]
    places = MANY if limits.partition_movements is None else limits.partition_movements
    slots = max(0, places - len(counted))
    leaders = MANY if limits.leader_movements is None else limits.leader_movements
    leader_slots = max(0, leaders - len(movers))
    waiting = [one for one in queue if isinstance(one.action, Expand)]
    waiting.sort(
        key=lambda one: (
            one.state is not None and one.state.replicas == one.state.start,
            one.request,
            one.topic_partition,
        )
    )
    leading = [one for one in waiting if one.moves_leader][: min(slots, leader_slots)]
    others = [one for one in waiting if not one.moves_leader][: slots - len(leading)]
    found = [
        DueAction(one.topic_partition, one.state, one.action)
        for one in (*running, *leading, *others)
        if one.state is not None
    ]
    return sorted(found, key=by_partition)
