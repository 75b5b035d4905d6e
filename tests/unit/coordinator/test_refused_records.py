"""ZooKeeper refuses the record of one group: that group waits, and the term goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import pytest

from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_common.zk.errors import (
    BadVersion,
    MultiFailed,
    NotEmpty,
    NotPermitted,
    RequestTooLarge,
    SessionExpired,
    ZkError,
)
from leadline_coordinator.domain.records import GroupRecord
from tests.support.services.zookeeper import until
from tests.unit.coordinator.test_polled_members import World

PATH = "/consumers/groups/g/owners/t"


@dataclass
class RefusingWorld(World):
    """Its store refuses the record of the group `g`."""

    refusal: ZkError | None = None

    async def record(self, term: LeadershipTerm, record: GroupRecord) -> None:
        if self.refusal is not None and record.name == "g":
            raise self.refusal
        await super().record(term, record)


@pytest.mark.parametrize(
    "refusal",
    [
        MultiFailed(3, NotPermitted(PATH)),
        MultiFailed(3, NotEmpty(PATH)),
        RequestTooLarge(2 << 20, 1 << 20),
    ],
    ids=lambda refusal: type(getattr(refusal, "error", refusal)).__name__,
)
async def test_only_its_group_waits_until_the_record_is_taken(refusal: ZkError) -> None:
    world = RefusingWorld(refusal=refusal)
    term = asyncio.create_task(world.coordinator.run())
    async with asyncio.timeout(20):
        await world.coordinator.ready.wait()
        consumer, other = world.join(), world.join("other")
        group = world.manager.group
        await until(lambda: group.last_error is not None, "the refusal is shown")
        await until(lambda: owners_of(world, "other") == {other.name}, "the other group is started")
        assert not consumer.member.held, "what is not recorded must not be consumed"
        world.refusal = None
        await consumer.settled(0, 1)
        assert world.manager.group.last_error is None
        assert not term.done()
    term.cancel()
    with suppress(asyncio.CancelledError):
        await term


def owners_of(world: RefusingWorld, group: str) -> set[str]:
    return {name for name, held in world.coordinator.manager(group).group.holders() if held}


@pytest.mark.parametrize(
    "end", [MultiFailed(0, BadVersion("/consumers/coordinator_epoch")), SessionExpired()]
)
async def test_the_term_ends_if_nobody_could_write(end: ZkError) -> None:
    world = RefusingWorld(refusal=end)
    term = asyncio.create_task(world.coordinator.run())
    async with asyncio.timeout(20):
        await world.coordinator.ready.wait()
        world.join()
        with pytest.raises(TermEnded):
            await term
