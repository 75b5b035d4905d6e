"""The partitions of a dead broker that had very many are queued in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.failed_brokers import FailedBroker
from leadline_common.settings import ControllerSettings
from leadline_common.slices import SLICE
from leadline_common.tasks import TaskNode, TaskState
from leadline_controller.domain.cluster import ClusterImage, PartitionImage
from leadline_controller.domain.healing import PARTITIONS
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.reassignment.healing import HealingManager
from leadline_controller.runtime.reassignment.task_store import ReassignmentTask
from leadline_controller.runtime.reassignment.throttles import HEAL
from tests.unit.controller.images import TOPIC, cluster, state

MANY = 8 * SLICE
CHUNK = ControllerSettings(
    controller_id=1, zookeeper_connect="nowhere:1"
).failed_broker_chunk_partitions
LEADERLESS = 3


class Records:
    """The record of a broker that is dead; notes what was queued."""

    def __init__(self) -> None:
        self.failed = {1: FailedBroker(0, 0, 7, MANY)}
        self.dead: dict[int, Any] = {}
        self.unrecorded: frozenset[int] = frozenset()

    def left_ms(self, _broker: int, _interval_ms: int) -> int:
        """Tell that the interval is over."""
        return -1

    async def record_queued(self, *_: int) -> None:
        """Note that all partitions of a broker were queued."""
        self.failed.clear()


class Tasks:
    """Notes the chunks."""

    def __init__(self, *queued: object) -> None:
        self.chunks: list[Submission] = []
        self.store = self
        self._queued = queued

    async def prepare(self, chunk: Submission) -> None:
        """Note a chunk."""
        self.chunks.append(chunk)

    def subscribe(self, *_: object) -> None:
        """Call nobody."""

    def __iter__(self) -> Iterator[ReassignmentTask]:
        return iter(cast("tuple[ReassignmentTask, ...]", self._queued))


def _nobody(*_: object) -> None:
    pass


async def _nothing(*_: object) -> None:
    pass


def manager_of(image: ClusterImage, records: Records, tasks: Tasks) -> HealingManager:
    """Return the manager of a cluster whose broker 1 is dead."""
    settings = ControllerSettings(
        controller_id=1, zookeeper_connect="nowhere:1", failed_broker_budget_percent=100
    )
    given: dict[str, Any] = {
        "records": records,
        "queue": SimpleNamespace(after_event=lambda _: _nobody, trigger=_nobody),
        "configs": SimpleNamespace(current=lambda: settings, subscribe=lambda _: None),
        "audit": SimpleNamespace(actor="me", entry=lambda *_, **__: None, record=_nothing),
        "tasks": tasks,
    }
    return HealingManager(
        image=image, clock=cast("Any", None), reassignments=ReassignmentQueue(), **given
    )


async def test_very_many_partitions_are_queued_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = range(MANY)
    states = dict.fromkeys(numbers, state(2, (2,)))
    states[LEADERLESS] = state(-1, (1,))
    image = cluster({2, 3}, dict.fromkeys(numbers, (1, 2)), states)
    records, tasks = Records(), Tasks()
    examined: list[int] = []
    turns = 0

    def counted(image: ClusterImage, one: TopicPartition) -> PartitionImage | None:
        examined.append(turns)
        return find(image, one)

    find = ClusterImage.partition
    monkeypatch.setattr(ClusterImage, "partition", counted)
    work = asyncio.ensure_future(manager_of(image, records, tasks).on_healing_due())
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    await work

    assert max(map(examined.count, set(examined))) <= SLICE
    queued = [number for one in tasks.chunks for number in one.details["partitions"][TOPIC]]
    assert queued == [number for number in numbers if number != LEADERLESS]
    assert max(len(one.details["partitions"][TOPIC]) for one in tasks.chunks) == CHUNK
    assert records.failed, "the partition without a leader is not queued yet"


def test_what_chunks_contain_is_counted_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object for each partition of a dead broker takes 0.4 s for 100,000 of them."""
    details = {PARTITIONS: {TOPIC: list(range(1, MANY))}}
    node = TaskNode(kind=HEAL, state=TaskState.PREPARING, details=details)
    image = cluster({2, 3}, dict.fromkeys(range(MANY), (1, 2)))
    manager = manager_of(image, Records(), Tasks(SimpleNamespace(broker=1, node=node)))
    created: list[TopicPartition] = []

    def counted(topic: str, number: int) -> TopicPartition:
        created.append(TopicPartition(topic, number))
        return created[-1]

    monkeypatch.setattr("leadline_controller.domain.healing.TopicPartition", counted)
    waits_for = manager.waits_for(1)

    assert waits_for is not None
    assert waits_for.startswith("1 partitions need a leader")
    assert created == [TopicPartition(TOPIC, 0)]
