"""The steps of very many reassignments are written in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.clock import SystemClock
from leadline_common.leader_election import TermEnded
from leadline_common.tasks import Intent
from leadline_common.zk.errors import BadVersion, MultiFailed
from leadline_common.zk.ops import CheckOp, MultiResults, Op, OpResult, SetOp, Stat
from leadline_common.znodes import TopicAssignment, topic_path
from leadline_controller.domain.cluster import ClusterImage, StateSet, TopicGone, TopicSet
from leadline_controller.domain.reassignment.batches import ReassignmentLimits
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.reassignment.intents import IntentNodes
from leadline_controller.runtime.reassignment.step_writer import (
    BEGUN_AT_ONCE,
    TOPIC_COST,
    StepWriter,
)
from tests.unit.controller.images import cluster, state

AT_ONCE = BEGUN_AT_ONCE // (TOPIC_COST + 1)
TOPICS = [f"t{number}" for number in range(5 * AT_ONCE)]


class Store:
    """ZooKeeper that answers a multi in the next turn, and counts those submitted in each turn.

    It refuses the write of the `refused` topics, whose nodes are gone.
    """

    def __init__(self) -> None:
        self.turn = 0
        self.first = asyncio.Event()
        self.submitted: list[int] = []
        self.checks_of_epoch_fail = False
        self.refused: set[str] = set()

    def lease_valid(self) -> bool:
        """Tell that this controller may write."""
        return True

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        """Note a multi, and answer it in the next turn."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[MultiResults] = loop.create_future()
        self.submitted.append(self.turn)
        self.first.set()
        loop.call_soon(self._answer, answer, ops)
        return answer

    def _answer(self, answer: asyncio.Future[MultiResults], ops: Sequence[Op]) -> None:
        refused = {topic_path(topic) for topic in self.refused}
        index = next((i for i, op in enumerate(ops) if op.path in refused), None)
        if self.checks_of_epoch_fail:
            index = 0
        if answer.cancelled():
            return
        if index is not None:
            answer.set_exception(MultiFailed(index, BadVersion(ops[index].path)))
        else:
            answer.set_result(MultiResults(map(_result, ops), 100 + len(self.submitted)))

    async def read_topics(self, topics: Sequence[str], _known: object) -> list[TopicGone]:
        """Find that the topics are gone."""
        return [TopicGone(topic, 500) for topic in topics]

    async def read_states(self, _: object) -> list[StateSet]:
        """Find no state."""
        return []


def _result(op: Op) -> OpResult:
    if isinstance(op, SetOp):
        return Stat(1, 100, 0, 0, op.version + 1, 0, 0, 0, 0, 0, 0)
    return None if isinstance(op, CheckOp) else op.path


def many() -> tuple[ClusterImage, ReassignmentQueue]:
    """Return many topics whose only partition is to move, and their queue."""
    image = cluster({1, 2, 3}, {})
    image.apply([TopicSet(topic, TopicAssignment("id", {0: (1, 2)}), 0, 2) for topic in TOPICS])
    image.apply([StateSet(topic, 0, state(1, (1, 2)), 3, 10) for topic in TOPICS])
    queue = ReassignmentQueue()
    for topic in TOPICS:
        queue.put(TopicPartition(topic, 0), Intent((3, 2), (1, 2), task="7"), 0, 1)
    return image, queue


def writer_of(image: ClusterImage, queue: ReassignmentQueue, store: Store) -> StepWriter:
    """Return a writer of the steps; nobody is sent what it writes."""
    trusted = cast("Any", store)
    states = StateWriter(
        trusted, image, cast("Any", SimpleNamespace(epoch_version=3)), SystemClock(), 1_000, _ignore
    )
    brokers = SimpleNamespace(
        metadata_held=nullcontext, send_roles=_ignore, delete_reassigned=_ignore
    )
    counters = SimpleNamespace(
        reassignment_steps=SimpleNamespace(labels=lambda _: SimpleNamespace(inc=_ignore)),
        count_elections=_ignore,
    )
    given: dict[str, Any] = {
        "publisher": SimpleNamespace(apply_topics=image.apply, apply_read=image.apply),
        "dispatcher": brokers,
        "metrics": counters,
        "external": SimpleNamespace(record_topics=_nothing, record_states=_nothing),
    }
    return StepWriter(
        store=trusted,
        image=image,
        writer=states,
        audit=AuditLog(states, SystemClock(), "controller-1"),
        intents=IntentNodes(trusted, cast("Any", SimpleNamespace(trigger_later=_ignore))),
        reassignments=queue,
        **given,
    )


def _ignore(*_: object) -> None:
    pass


async def _nothing(*_: object) -> None:
    pass


async def written(writer: StepWriter, queue: ReassignmentQueue, store: Store) -> bool:
    """Write all steps, and count the turns of the loop meanwhile."""
    due = queue.due(writer.image, ReassignmentLimits())
    assert len(due) == len(TOPICS)
    work = asyncio.ensure_future(writer.write(due))
    while not work.done():
        await asyncio.sleep(0)
        store.turn += 1
    return await work


async def test_steps_of_very_many_topics_are_written_in_turns() -> None:
    image, queue = many()
    store = Store()

    assert await written(writer_of(image, queue, store), queue, store)

    assert len(store.submitted) == len(TOPICS)
    assert max(map(store.submitted.count, store.submitted)) <= AT_ONCE
    assert {image.topics[topic].assignment.adding[0] for topic in TOPICS} == {(3,)}


async def test_topics_that_are_gone_by_their_turn_keep_no_other_waiting() -> None:
    image, queue = many()
    store = Store()
    store.refused = {TOPICS[0], TOPICS[-1]}

    assert await written(writer_of(image, queue, store), queue, store)

    assert set(image.topics) - {"orders"} == set(TOPICS) - store.refused
    left = TOPICS[1:-1]
    assert {image.topics[topic].assignment.adding[0] for topic in left} == {(3,)}


async def test_the_end_of_the_term_ends_the_write() -> None:
    """Rule R11: whatever was sent since is refused, and changes nothing."""
    image, queue = many()
    store = Store()
    store.checks_of_epoch_fail = True

    with pytest.raises(TermEnded):
        await written(writer_of(image, queue, store), queue, store)

    assert not any(image.topics[topic].assignment.adding for topic in TOPICS)


async def test_a_cancelled_write_sends_nothing_more_and_leaves_nothing_behind() -> None:
    image, queue = many()
    store = Store()
    before = asyncio.all_tasks()
    due = queue.due(image, ReassignmentLimits())
    work = asyncio.ensure_future(writer_of(image, queue, store).write(due))
    await store.first.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert len(store.submitted) <= 2 * AT_ONCE
    assert asyncio.all_tasks() == before
