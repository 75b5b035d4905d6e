"""Winning an election is one transaction on the leader node and the epoch (rule R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from leadline_common.election_store import ElectionNodes, ElectionStore
from leadline_common.leader_election import Claim, LeadershipTerm
from leadline_common.zk.errors import BadVersion, MultiFailed, NodeExists
from leadline_common.zk.ops import CreateOp, MultiResults, Op, SetOp, Stat

LEADER, EPOCH = "/leader", "/leader_epoch"
WRITTEN = Stat(1, 2, 100, 200, 10, 0, 0, 0, 1, 0, 1)
CLAIM = Claim(1, "http://127.0.0.1:1", b"one")


class RecordingStore(ElectionStore):
    """Keeps what it is to write, and answers with `refusal` if there is one."""

    def __init__(self, refusal: MultiFailed | None = None) -> None:
        super().__init__(ElectionNodes(LEADER, EPOCH, lambda data: (int(data), "", "")))
        self.written: list[Op] = []
        self._refusal = refusal

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[MultiResults]:
        self.written += ops
        answer: asyncio.Future[MultiResults] = asyncio.get_running_loop().create_future()
        if self._refusal is None:
            answer.set_result(MultiResults([LEADER, WRITTEN], 1))
        else:
            answer.set_exception(self._refusal)
        return answer


async def test_a_claim_raises_the_epoch_that_it_has_read_and_no_other() -> None:
    """Without the version, one who was elected meanwhile would share its epoch."""
    store = RecordingStore()

    won = await store.claim(LeadershipTerm(epoch=4, epoch_version=9), CLAIM)

    assert won == LeadershipTerm(5, 10)
    assert won is not None
    assert won.began_ms == WRITTEN.mtime
    assert store.written == [CreateOp(LEADER, b"one", ephemeral=True), SetOp(EPOCH, b"5", 9)]


@pytest.mark.parametrize("reason", [NodeExists(LEADER), BadVersion(EPOCH)])
async def test_a_claim_that_came_too_late_wins_no_term(reason: NodeExists | BadVersion) -> None:
    store = RecordingStore(MultiFailed(0, reason))

    assert await store.claim(LeadershipTerm(4, 9), CLAIM) is None
