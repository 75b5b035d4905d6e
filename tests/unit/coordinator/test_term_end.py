"""The end of a coordinator's term, while requests are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from leadline_client.errors import LeadlineError, NotCoordinator, StoreOutcomeUnknown
from leadline_client.wire import TopicPartition
from leadline_common.group_commits import CommitRequest, OffsetToCommit
from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_coordinator.domain.records import CommittedOffset
from leadline_coordinator.runtime.offsets import CommitOutcome, GroupOffsets
from tests.support.services.zookeeper import until
from tests.unit.coordinator.test_polled_members import World


@dataclass
class SlowWorld(World):
    """Its store does not answer writes of offsets while `answering` is not set."""

    answering: asyncio.Event = field(default_factory=asyncio.Event)
    broken_off: asyncio.Event = field(default_factory=asyncio.Event)
    writes: int = 0

    async def write_offsets(
        self,
        term: LeadershipTerm,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        audit: Sequence[object],
    ) -> None:
        self.writes += 1
        try:
            await self.answering.wait()
        except asyncio.CancelledError:
            self.broken_off.set()
            raise
        await super().write_offsets(term, group, offsets, audit)

    async def delete_group(self, *_: object) -> None:
        """Never answer: the connection is gone."""
        await asyncio.Event().wait()

    async def commit(self, group: str) -> list[CommitOutcome]:
        request = CommitRequest((OffsetToCommit("t", 0, 5),))
        return await GroupOffsets(self.coordinator).commit(group, request)

    async def commit_as_the_term_ends(self, group: str) -> list[CommitOutcome]:
        await self.broken_off.wait()
        return await self.commit(group)


async def test_a_group_that_comes_as_the_term_ends_leaves_no_other_group_open() -> None:
    world = SlowWorld()
    world.answering.set()
    term = asyncio.create_task(world.coordinator.run())
    async with asyncio.timeout(10):
        await world.coordinator.ready.wait()
        await world.commit("first")  # the end of the log is known from now on
        world.answering.clear()
        world.writes = 0
        waiting = [asyncio.create_task(world.commit(group)) for group in ("first", "second")]
        late = asyncio.create_task(world.commit_as_the_term_ends("third"))
        await until(lambda: world.writes == len(waiting), "both commits are being written")
        world.lost.set()
        with pytest.raises(TermEnded):
            await term
        for each in waiting:
            with pytest.raises(StoreOutcomeUnknown):
                await each
        with pytest.raises(NotCoordinator):
            await late
    assert "third" not in world.coordinator.groups


@pytest.mark.parametrize("turns", range(8))
async def test_a_deletion_that_begins_as_the_term_ends_is_answered(turns: int) -> None:
    world = SlowWorld()
    world.answering.set()
    term = asyncio.create_task(world.coordinator.run())
    async with asyncio.timeout(10):
        await world.coordinator.ready.wait()
        await world.commit("first")
        world.lost.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        with pytest.raises(LeadlineError) as refused:
            await world.coordinator.delete("first")
        assert isinstance(refused.value, NotCoordinator | StoreOutcomeUnknown)
        with pytest.raises(TermEnded):
            await term
