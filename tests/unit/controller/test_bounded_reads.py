"""Reads of a history whose disk hangs end, and do not pile up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leadline_client.errors import HistoryUnavailable
from leadline_common.znodes import AuditEntry
from leadline_controller.adapters.history.store import SqlHistory
from leadline_controller.domain.history import AuditQuery, AuditRecord
from leadline_controller.runtime.audit.bounded_reads import BoundedReads, ReadLimits
from tests.support.services.cluster import wait_until

DEADLINE_S = 20
AT_ONCE = 3


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[SqlHistory]:
    opened = SqlHistory(f"sqlite:///{tmp_path / 'history.db'}")
    await opened.open("one")
    await opened.append([AuditRecord(0, 1, AuditEntry(0, "", "a", "kind"))])
    yield opened
    await opened.close()


@contextmanager
def hanging(history: SqlHistory) -> Iterator[None]:
    """Let the threads that read wait, as for a disk."""
    goes_on = threading.Event()
    for _ in range(2):
        history.readers.submit(goes_on.wait, DEADLINE_S * 3)
    try:
        yield
    finally:
        goes_on.set()


async def read(history: SqlHistory, limits: ReadLimits) -> list[AuditRecord]:
    reads = BoundedReads(history, limits)
    async with asyncio.timeout(DEADLINE_S):
        return await reads.find(AuditQuery(), cursor=None, newest_first=True, limit=1)


async def test_a_read_ends_although_the_disk_hangs(history: SqlHistory) -> None:
    limits = ReadLimits(within_s=0.05)
    assert len(await read(history, limits)) == 1
    with hanging(history), pytest.raises(HistoryUnavailable, match="has not answered"):
        await read(history, limits)


async def test_reads_that_nobody_waits_for_count_until_they_end(history: SqlHistory) -> None:
    limits = ReadLimits(within_s=DEADLINE_S * 3, at_once=AT_ONCE)
    with hanging(history):
        callers = [asyncio.create_task(read(history, limits)) for _ in range(AT_ONCE)]
        await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        for _ in range(2):
            with pytest.raises(HistoryUnavailable, match="too many"):
                await read(history, limits)

    async def is_served() -> bool:
        try:
            return len(await read(history, limits)) == 1
        except HistoryUnavailable:
            return False

    await wait_until(is_served, "reads are served again")


async def test_the_error_of_a_read_is_its_own(history: SqlHistory) -> None:
    await history.close()
    with pytest.raises(RuntimeError, match="not open"):
        await read(history, ReadLimits())
