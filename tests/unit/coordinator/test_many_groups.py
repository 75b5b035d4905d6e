"""Very many groups are restored and looked at in turns of the coordinator's event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.leader_election import TermEnded
from leadline_common.slices import SLICE
from leadline_coordinator.domain.records import (
    CommittedOffset,
    GroupRecord,
    MemberSubscription,
    StoredGroup,
)
from leadline_coordinator.runtime.maintenance import GroupMaintenance
from tests.unit.coordinator.test_polled_members import World

DAY = 86_400_000
MANY = 8 * SLICE
OFFSETS = {TopicPartition("t", 0): CommittedOffset(7, 0)}


def group(number: int, *, is_empty: bool = False, since_ms: int | None = 1) -> StoredGroup:
    """Return a group with a member, unless it is empty, and an offset."""
    members = {} if is_empty else {f"m{number}": MemberSubscription(topics=("t",))}
    record = GroupRecord(f"g{number}", "range", "eager", 1, members, {}, empty_since_ms=since_ms)
    return StoredGroup(record, OFFSETS)


@dataclass
class ManyGroups(World):
    """A world with very many groups."""

    stored: list[StoredGroup] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    async def load(self) -> list[StoredGroup]:
        return self.stored

    async def delete_group(self, _: object, name: str, __: object) -> None:
        """Note that a group is deleted."""
        self.deleted.append(name)


async def test_very_many_groups_are_restored_in_turns() -> None:
    world = ManyGroups(stored=[group(number) for number in range(MANY)])
    coordinator = world.coordinator
    starting = asyncio.create_task(coordinator.coordinator_startup())
    counts = set()
    while not starting.done():
        await asyncio.sleep(0)
        counts.add(len(coordinator.groups))
        assert coordinator.ready.is_set() == (len(coordinator.groups) == MANY)
    await starting

    assert counts >= set(range(0, MANY + 1, SLICE))
    assert len(coordinator.groups_being_rebalanced) in (0, MANY)


def end_when_restoring(world: ManyGroups) -> None:
    """Lose the session as soon as some groups are restored."""
    if world.coordinator.groups:
        world.lost.set()
    else:
        asyncio.get_running_loop().call_soon(end_when_restoring, world)


async def test_a_term_that_ends_while_groups_are_restored_leaves_none_open() -> None:
    world = ManyGroups(stored=[group(number) for number in range(MANY)])
    coordinator = world.coordinator
    term = asyncio.create_task(coordinator.run())
    asyncio.get_running_loop().call_soon(end_when_restoring, world)
    with pytest.raises(TermEnded):
        await term

    assert len(coordinator.groups) < MANY
    assert not coordinator.ready.is_set()
    closed = [manager.committer._closed for manager in coordinator.groups.values()]
    assert all(closed)


@pytest.mark.parametrize("days", [-3_650, 3_650])
async def test_a_group_does_not_expire_because_a_clock_is_set(days: int) -> None:
    """Its offsets would be gone, and who reads on with it would miss records or repeat them."""
    world = ManyGroups()
    maintenance = GroupMaintenance(world.coordinator)
    now_ms = world.clock.wall_ms()
    world.stored = [group(1, is_empty=True, since_ms=now_ms)]
    await world.coordinator.coordinator_startup()
    world.clock.step_wall(days * DAY)

    assert await maintenance.expire() == []
    world.clock.advance(6 * DAY)
    assert await maintenance.expire() == []
    if days > 0:
        world.clock.advance(2 * DAY)
        assert await maintenance.expire() == ["g1"]


async def test_a_group_is_empty_since_the_later_of_two_clocks() -> None:
    """By a clock that is behind, it would seem to be old to the next coordinator."""
    world = ManyGroups(stored=[group(1, is_empty=True, since_ms=None)])
    now_ms = world.clock.wall_ms()
    world.clock.step_wall(-3_650 * DAY)
    await world.coordinator.coordinator_startup()
    assert world.coordinator.groups["g1"].group.empty_since_wall_ms == now_ms


async def test_a_group_that_is_another_by_its_turn_does_not_expire() -> None:
    world = ManyGroups(stored=[group(number, is_empty=True) for number in range(MANY)])
    coordinator = world.coordinator
    await coordinator.coordinator_startup()
    last = f"g{MANY - 1}"
    expiring = asyncio.create_task(GroupMaintenance(coordinator).expire())
    await asyncio.sleep(0)
    del coordinator.groups[last]
    coordinator.on_group_change(last)
    coordinator.groups[last].group.empty_since_wall_ms = world.clock.wall_ms()
    await expiring

    assert len(world.deleted) == MANY - 1
    assert last in coordinator.groups
