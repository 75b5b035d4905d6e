"""A standby controller leaves the processor to others before it stores new entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from leadline_common.settings import ControllerSettings
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.history import AuditQuery, AuditRecord, ReaderPosition
from leadline_controller.runtime.audit import replication
from leadline_controller.runtime.audit.replication import AuditReplicator
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.ports import AuditHistory, Outbox, PeerAuditClient
from tests.support.manual_clock import ManualClock
from tests.support.services.zookeeper import until

LONGER_THAN_THE_TEST_S = 60.0


class Entries:
    """An outbox in memory; every entry is present."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []
        self._wakes: list[Callable[[], None]] = []

    def write(self) -> None:
        entry = AuditEntry(time=0, cause="c", actor="controller-1", kind="topic_created")
        self.records.append(AuditRecord(len(self.records), 100, entry))
        for wake in self._wakes:
            wake()

    async def sync(self) -> None:
        pass

    async def extent(self) -> tuple[int, int]:
        return len(self.records), len(self.records)

    async def ids(self) -> list[int]:
        return [record.id for record in self.records]

    async def skip_to(self, first: int) -> bool:
        return first > len(self.records)

    async def read(self, first: int, count: int) -> list[AuditRecord]:
        return self.records[first : first + count]

    async def watch(self, audit_id: int, wake: Callable[[], None]) -> bool:
        self._wakes.append(wake)
        return audit_id < len(self.records)

    async def note(self, position: ReaderPosition) -> None:
        self.position = position


class Stored:
    """A history in memory."""

    is_durable = False

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    async def open(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id

    async def ids(self) -> tuple[int, int]:
        return (0, len(self.records) - 1) if self.records else (-1, -1)

    async def append(self, records: Sequence[AuditRecord]) -> None:
        self.records += records

    async def find(self, query: AuditQuery, **_: object) -> list[AuditRecord]:
        return [record for record in self.records if record.entry.kind == query.kind]

    async def check(self) -> None:
        assert self.cluster_id == "cluster"

    async def forget_before(self, time_ms: int, now_ms: int) -> int:
        assert time_ms <= now_ms
        before = len(self.records)
        self.records = [record for record in self.records if record.entry.time >= time_ms]
        return before - len(self.records)


@asynccontextmanager
async def following(entries: Entries, stored: object) -> AsyncIterator[AuditReplicator]:
    """Replicate as a standby does, until the end of the block."""
    replicator = AuditReplicator(
        ControllerSettings(controller_id=2),
        "http://standby",
        cast("AuditHistory", stored),
        cast("PeerAuditClient", None),
        ManualClock(),
        ControllerMetrics(),
    )
    following = asyncio.create_task(
        replicator.follow(cast("Outbox", entries), "cluster", replicator.rest)
    )
    try:
        yield replicator
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@pytest.fixture
def long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "STANDBY_REST_S", LONGER_THAN_THE_TEST_S)
    monkeypatch.setattr(replication, "MAX_SETTLE_S", LONGER_THAN_THE_TEST_S)


@pytest.mark.usefixtures("long_rests")
async def test_what_was_written_before_is_stored_at_once() -> None:
    entries, stored = Entries(), Stored()
    entries.write()
    async with following(entries, stored):
        await until(lambda: len(stored.records) == 1, "the entry is stored")


@pytest.mark.usefixtures("long_rests")
async def test_new_entries_wait_until_somebody_asks_for_them() -> None:
    entries, stored = Entries(), Stored()
    async with following(entries, stored) as replicator:
        await until(lambda: bool(entries._wakes), "it waits for entries")
        entries.write()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not stored.records, "it rests"

        assert await replicator.catch_up(20)
        assert len(stored.records) == 1


async def test_new_entries_are_stored_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "STANDBY_REST_S", 0.01)
    entries, stored = Entries(), Stored()
    async with following(entries, stored):
        await until(lambda: bool(entries._wakes), "it waits for entries")
        entries.write()
        await until(lambda: len(stored.records) == 1, "the entry is stored")
