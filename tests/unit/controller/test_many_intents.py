"""Very many intents are read and examined in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.clock import SystemClock
from leadline_common.slices import SLICE
from leadline_common.tasks import Intent
from leadline_common.znodes import TopicAssignment
from leadline_controller.domain.cluster import TopicSet
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.state import ReadNode
from leadline_controller.runtime.engine.event_queue import EventQueue
from leadline_controller.runtime.ports import ControllerStore, Wake
from leadline_controller.runtime.reassignment import agent, intents
from leadline_controller.runtime.reassignment.agent import ReassignmentAgent
from leadline_controller.runtime.reassignment.intents import IntentNodes
from tests.unit.controller.images import TOPIC, cluster

MANY = 4 * SLICE


class Store:
    """A store with very many intents of one topic."""

    async def list_children(self, path: str, wake: Wake) -> list[str]:
        del wake
        return [str(number) for number in range(MANY)] if path.endswith(TOPIC) else [TOPIC]

    async def read_nodes(self, paths: Sequence[str]) -> list[ReadNode]:
        return [ReadNode(b"[2]", version=0, zxid=7) for _ in paths]


async def most_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    work: Callable[[], Awaitable[object]],
) -> int:
    """Return how often a function of a module is called in one turn at most."""
    turn = 0
    calls: Counter[int] = Counter()
    real = getattr(module, name)

    def counted(*arguments: object) -> object:
        calls[turn] += 1
        return real(*arguments)

    monkeypatch.setattr(module, name, counted)
    task = asyncio.ensure_future(work())
    while not task.done():
        await asyncio.sleep(0)
        turn += 1
    await task
    assert calls.total() >= MANY
    return max(calls.values())


@pytest.mark.parametrize("step", ["is_partition", "_decoded"])
async def test_intents_are_read_in_turns(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = IntentNodes(cast("ControllerStore", Store()), EventQueue(SystemClock()))

    async def read() -> None:
        assert len((await nodes.read(everything=True)).changed) == MANY

    assert await most_in_a_turn(monkeypatch, intents, step, read) <= SLICE


async def test_steps_without_an_intent_are_looked_for_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = cluster({1, 2, 3}, {})
    rows = dict.fromkeys(range(MANY), (1, 2, 3))
    adding = dict.fromkeys(range(MANY), (3,))
    image.apply([TopicSet(TOPIC, TopicAssignment("id-1", rows, adding), 1, zxid=3)])
    undone: list[TopicPartition] = []

    async def write_intents(undo: dict[TopicPartition, Intent], _kind: str) -> None:
        undone.extend(undo)

    known: dict[str, Any] = {"image": image, "reassignments": ReassignmentQueue()}
    of = cast("ReassignmentAgent", SimpleNamespace(write_intents=write_intents, **known))

    async def undo() -> None:
        await ReassignmentAgent._undo_orphans(of)

    assert await most_in_a_turn(monkeypatch, agent, "current_replicas", undo) <= SLICE
    assert undone == [TopicPartition(TOPIC, number) for number in range(MANY)]


async def test_intents_for_what_is_gone_are_looked_for_in_turns() -> None:
    image = cluster({1, 2, 3}, {0: (1, 2, 3)})
    queue = ReassignmentQueue()
    for number in range(MANY):
        queue.put(TopicPartition(TOPIC, number), Intent((2,)), 0, number)
    of = cast("ReassignmentAgent", SimpleNamespace(image=image, reassignments=queue))

    task = asyncio.ensure_future(ReassignmentAgent._obsolete(of))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1

    assert await task == {TOPIC: [TopicPartition(TOPIC, number) for number in range(1, MANY)]}
    assert turns >= MANY // SLICE
