"""An append that breaks off after its bytes are in the file: the log has failed, and its broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from leadline_broker.adapters.log.segment import Segment
from leadline_client.errors import StorageFailed
from tests.unit.broker.small_cluster import three

DEADLINE_S = 20


def forbid_noting(monkeypatch: pytest.MonkeyPatch, broker: int) -> None:
    """Let a broker have no memory for what its logs append."""
    real = Segment.note

    def note(segment: Segment, *arguments: Any) -> None:
        if f"/{broker}/" in str(segment.file.path):
            raise MemoryError
        real(segment, *arguments)

    monkeypatch.setattr(Segment, "note", note)


async def test_a_leader_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on to lead, and answered every further request with an error."""
    async with await three(tmp_path) as cluster:
        forbid_noting(monkeypatch, 1)
        with pytest.raises(MemoryError):
            await cluster.produce(1, "v")
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(StorageFailed, match="broke off"):
                await cluster.brokers[1].failed()


async def test_a_follower_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await three(tmp_path) as cluster:
        forbid_noting(monkeypatch, 2)
        producing = asyncio.create_task(cluster.produce(1, "v"))
        try:
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(StorageFailed, match="broke off"):
                    await cluster.brokers[2].failed()
        finally:
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)
