"""What a write to a group is said to have done when another coordinator is elected meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes
from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_common.zk.errors import BadVersion, MultiFailed
from leadline_common.zk.ops import MultiResults, Op
from leadline_common.zk.session import ZkSession
from leadline_coordinator.adapters.group_nodes import GroupNodes
from leadline_coordinator.domain.records import CommittedOffset

TERM = LeadershipTerm(1, 1)
MANY = {TopicPartition("t", number): CommittedOffset(1, 0) for number in range(1_500)}
"""Too many for one multi."""


class FencedSession:
    """Has no nodes, and refuses multis once so many are applied."""

    def __init__(self, applied: int) -> None:
        self.left = applied

    async def get_many(self, paths: Sequence[str]) -> list[None]:
        return [None for _ in paths]

    async def get_permitted_children(self, paths: Sequence[str]) -> list[None]:
        return [None for _ in paths]

    def submit_multi(self, _: Sequence[Op]) -> asyncio.Future[MultiResults]:
        answer: asyncio.Future[MultiResults] = asyncio.get_running_loop().create_future()
        if self.left > 0:
            answer.set_result(MultiResults([], 1))
        else:
            fenced = BadVersion(consumer_znodes.COORDINATOR_EPOCH)
            answer.set_exception(MultiFailed(0, fenced))
        self.left -= 1
        return answer


@pytest.mark.parametrize(
    ("applied", "error"),
    [
        pytest.param(0, TermEnded, id="nothing"),
        pytest.param(1, TermEnded, id="only-the-empty-group"),
        pytest.param(2, MultiFailed, id="a-part-of-the-offsets"),
    ],
)
async def test_a_write_is_refused_only_if_nothing_of_it_is_written(
    applied: int, error: type[Exception]
) -> None:
    nodes = GroupNodes(cast("ZkSession", FencedSession(applied)))

    with pytest.raises(error):
        await nodes.write_offsets(TERM, "g", MANY)
