"""A history whose disk is full or read-only: said once in a while, and why; then it goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from leadline_client.errors import HistoryUnavailable
from leadline_controller.adapters.history.store import SqlHistory
from leadline_controller.domain.history import AuditRecord
from leadline_controller.runtime.audit import replication
from tests.support.faults import disks as own
from tests.support.faults.disks import Disk
from tests.support.left_out import MARK
from tests.support.services.zookeeper import until
from tests.unit.controller.test_history_store import made
from tests.unit.controller.test_standby_history import Entries, following

DISK_BYTES = 2 << 20
FULL = "database or disk is full"

pytestmark = pytest.mark.skipif(own.why_not() is not None, reason=f"{MARK}: {own.why_not()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    directory = tmp_path / "disk"
    directory.mkdir()
    disk = Disk(directory, DISK_BYTES)
    disk.mount()
    try:
        yield disk
    finally:
        disk.unmount()


def url_on(disk: Disk) -> str:
    return f"sqlite:///{disk.directory / 'history.db'}"


def remount(disk: Disk, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk.directory)], check=True)


def long(first: int) -> list[AuditRecord]:
    """Return entries that need more room than the pages of the log that were written before."""
    return [made(number, reason="long " * 20_000) for number in range(first, first + 10)]


async def open_and_append(history: SqlHistory) -> None:
    await history.open("one")
    await history.append([made(1)])


async def test_a_full_disk_is_named_and_what_was_stored_can_be_read(disk: Disk) -> None:
    history = SqlHistory(url_on(disk))
    await history.open("one")
    await history.append([made(0)])
    disk.fill()
    with pytest.raises(HistoryUnavailable, match=f"history.db cannot be used: {FULL}"):
        await history.append(long(1))
    assert await history.ids() == (0, 0)
    disk.free()
    await history.append([made(1)])
    assert await history.ids() == (0, 1)
    await history.close()


async def test_a_history_opened_on_a_read_only_disk_is_written_when_that_is_writable(
    disk: Disk,
) -> None:
    """SQLite had opened the file for reading only, and no append worked until a restart."""
    before = SqlHistory(url_on(disk))
    await before.open("one")
    await before.append([made(0)])
    await before.close()
    remount(disk, "ro")
    history = SqlHistory(url_on(disk))
    try:
        with pytest.raises(HistoryUnavailable, match="cannot be used"):
            await open_and_append(history)
    finally:
        remount(disk, "rw")
    await open_and_append(history)
    assert await history.ids() == (0, 1)
    await history.close()


async def test_replication_says_once_that_the_disk_is_full_and_then_that_it_works_again(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "RETRY_S", 0.01)
    monkeypatch.setattr(replication, "STANDBY_REST_S", 0.0)
    history, entries = SqlHistory(url_on(disk)), Entries()
    await history.open("cluster")
    disk.fill()
    entries.records = long(0)
    attempts = 0

    async def append(records: list[AuditRecord]) -> None:
        nonlocal attempts
        attempts += 1
        await SqlHistory.append(history, records)

    monkeypatch.setattr(history, "append", append)
    with capture_logs() as logs:
        async with following(entries, history) as replicator:
            await until(lambda: attempts > 5, "it was tried again and again")
            assert FULL in replicator.problem
            disk.free()
            await until(lambda: replicator.stored == 9, "the entries are stored")
            await until(lambda: not replicator.problem, "it works again")
    events = [(line["event"], line["log_level"]) for line in logs]
    assert events.count(("audit replication waits for its history", "error")) == 1
    assert events[-1] == ("audit replication works again", "info")
    assert not any(line.get("exc_info") for line in logs)
    await history.close()


async def test_an_own_disk_that_is_full_is_not_blamed_on_the_controller_that_is_asked(
    disk: Disk,
) -> None:
    """Else what is missing would count as lost after a minute."""
    history = SqlHistory(url_on(disk))
    await history.open("cluster")
    disk.fill()
    async with following(Entries(), history) as replicator:
        with pytest.raises(Exception, match=FULL) as failed:
            await replicator._store(long(0))
    assert not isinstance(failed.value, HistoryUnavailable)
    await history.close()
