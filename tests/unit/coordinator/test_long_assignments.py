"""An assignment that takes long is computed beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_client.channel import Assignor
from leadline_common.computing import INLINE_WORK
from leadline_coordinator.api.what_if import WhatIfAssignment
from leadline_coordinator.domain.assignors.assign import Outcome
from leadline_coordinator.domain.rebalance import ComputeAssignment
from leadline_coordinator.runtime.context import CoordinatorContext
from leadline_coordinator.runtime.group_manager import GroupManager

TOPICS = [f"t{number}" for number in range(20)]


def group(
    assignor: Assignor, members: int, topics: int, partitions: int, *, mixed: bool = False
) -> ComputeAssignment:
    """Return a group; if it is mixed, its first member asked for all topics, the others for half.

    That member had all partitions so far.
    """
    names = tuple(TOPICS[:topics])
    subscriptions = {f"m{number}": names for number in range(members)}
    if mixed:
        half = names[: topics // 2]
        subscriptions |= {member: half for member in subscriptions if member != "m0"}
    return ComputeAssignment(
        assignor, dict.fromkeys(names, partitions), subscriptions, {}, {}, {}, {}
    )


LONG = {
    "100,000 partitions": group("range", 1, 10, 10_000),
    "5,000 partitions, which take 15 ms": group("roundrobin", 10, 10, 500),
    "18,000 members": group("sticky", 18_000, 1, 100),
    "1,000 partitions of members that asked for different topics": group(
        "sticky", 50, 20, 50, mixed=True
    ),
    "9,000 partitions that pass over 1,000 members each": group(
        "roundrobin", 1_000, 2, 900, mixed=True
    ),
}
SHORT = {
    "a small group": group("sticky", 3, 2, 6),
    "a small mixed group": group("sticky", 3, 2, 6, mixed=True),
    "a group of 100": group("range", 100, 1, 300),
}


async def computed_in(step: ComputeAssignment, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the thread that an assignment is computed in."""
    threads = []

    def assign(*_: object, **__: object) -> Outcome:
        threads.append(threading.get_ident())
        return Outcome({}, ())

    monkeypatch.setattr("leadline_coordinator.runtime.group_manager.assign", assign)
    await GroupManager._compute(one_manager(), step)
    return threads[0]


def one_manager() -> GroupManager:
    """Return a manager that can only compute."""
    context = CoordinatorContext(*[cast("Any", None)] * 8)
    return cast("GroupManager", SimpleNamespace(_context=context))


@pytest.mark.parametrize("step", LONG.values(), ids=LONG)
async def test_a_long_assignment_is_computed_in_a_thread(
    step: ComputeAssignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await computed_in(step, monkeypatch) != threading.get_ident()


async def test_threads_of_members_count(monkeypatch: pytest.MonkeyPatch) -> None:
    step = group("range", 50, 20, 10)
    members = dict.fromkeys(step.subscriptions, 1_000)
    step = ComputeAssignment("range", step.topics, step.subscriptions, {}, members, {}, {})
    assert await computed_in(step, monkeypatch) != threading.get_ident()


async def test_many_long_assignments_leave_the_threads_of_others_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Metrics are formatted there, and names of brokers are resolved."""
    may_end = threading.Event()
    computing: list[int] = []
    most: list[int] = []

    def assign(*_: object, **__: object) -> Outcome:
        computing.append(1)
        may_end.wait()
        most.append(len(computing))
        computing.pop()
        return Outcome({}, ())

    monkeypatch.setattr("leadline_coordinator.runtime.group_manager.assign", assign)
    manager, step = one_manager(), LONG["100,000 partitions"]
    tasks = [asyncio.create_task(GroupManager._compute(manager, step)) for _ in range(40)]
    try:
        async with asyncio.timeout(10):
            await asyncio.to_thread(lambda: None)
    finally:
        may_end.set()
        await asyncio.gather(*tasks)
    assert most == [1] * 40


@pytest.mark.parametrize("step", SHORT.values(), ids=SHORT)
async def test_a_short_assignment_waits_for_no_thread(
    step: ComputeAssignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await computed_in(step, monkeypatch) == threading.get_ident()


def test_a_question_about_a_mixed_group_counts_as_long() -> None:
    step = group("sticky", 50, 20, 50, mixed=True)
    question = WhatIfAssignment(
        assignor="sticky",
        topics=dict(step.topics),
        subscriptions={member: list(wanted) for member, wanted in step.subscriptions.items()},
    )
    assert question.size() > INLINE_WORK
