"""Very many groups are shown in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from leadline_client.wire import TopicPartition
from leadline_common.slices import SLICE
from leadline_coordinator.api import groups
from leadline_coordinator.api.groups import GroupEndpoints, export_routes
from leadline_coordinator.domain.records import CommittedOffset
from leadline_coordinator.runtime.offsets import PartitionLag

MANY = 4_000
AT_ONCE = 1_000


def one(number: int) -> SimpleNamespace:
    """Return a manager of a group without members."""
    group = SimpleNamespace(
        name=f"g{number:04}",
        state="empty",
        protocol="eager",
        assignor="range",
        generation=0,
        members={},
        assignment=dict,
        rebalance_reason="",
        last_error="",
    )
    return SimpleNamespace(group=group, rebalancing_since_ms=None)


def coordinator() -> Any:
    """Return a coordinator with very many groups."""
    managers = [one(number) for number in range(MANY)]
    return SimpleNamespace(epoch=3, managers=lambda: managers)


def counted(name: str, monkeypatch: pytest.MonkeyPatch) -> Counter[float]:
    """Return how often a function of the module is called in each turn."""
    calls: Counter[float] = Counter()
    turn = 0
    real = getattr(groups, name)

    def call(*arguments: object) -> object:
        calls[turn] += 1
        return real(*arguments)

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(next_turn)

    asyncio.get_running_loop().call_soon(next_turn)
    monkeypatch.setattr(groups, name, call)
    return calls


async def test_groups_are_listed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted("_summary", monkeypatch)

    found = await cast("Any", GroupEndpoints(coordinator()).list_groups())

    assert [group.group for group in found.groups] == [f"g{n:04}" for n in range(MANY)]
    assert max(calls.values()) <= AT_ONCE


async def test_groups_are_exported_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    app = FastAPI()
    app.include_router(export_routes(coordinator()))
    calls = counted("group_view", monkeypatch)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://coordinator"
    ) as client:
        answer = await client.get("/v1/export/groups")

    assert len(answer.text.splitlines()) == MANY
    assert max(calls.values()) <= AT_ONCE


def with_offsets() -> tuple[Any, dict[TopicPartition, CommittedOffset]]:
    """Return a coordinator of a group with very many committed offsets."""
    committed = CommittedOffset(7, time_ms=5)
    offsets = {
        TopicPartition(f"t{topic}", number): committed for number in range(500) for topic in (2, 1)
    }
    manager = SimpleNamespace(committer=SimpleNamespace(offsets=offsets))
    lags = [PartitionLag(*one, committed=7, end=9, member=None) for one in sorted(offsets)]

    async def lag(_group: str) -> list[PartitionLag]:
        return lags

    return SimpleNamespace(
        manager=lambda _: manager, offsets=lambda: SimpleNamespace(lag=lag)
    ), offsets


@pytest.mark.parametrize("route", ["read_offsets", "read_lag"])
async def test_very_many_offsets_of_a_group_are_shown_in_turns(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, offsets = with_offsets()
    turns = 0

    async def pause(_delay_s: float) -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(asyncio, "sleep", pause)
    body = await getattr(GroupEndpoints(coordinator), route)("g")

    rows = body.offsets if route == "read_offsets" else body.partitions
    assert [(row.topic, row.partition) for row in rows] == sorted(offsets)
    assert turns == len(offsets) / SLICE - 1
