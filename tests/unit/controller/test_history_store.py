"""The history database on SQLite, and on PostgreSQL if a server can be started."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.exc import DatabaseError
from structlog.testing import capture_logs

from leadline_client.errors import HistoryUnavailable
from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.adapters.history.database import open_database
from leadline_controller.adapters.history.store import HistoryStore, SqlHistory
from leadline_controller.adapters.history.tables import metadata
from leadline_controller.domain.history import AuditQuery, AuditRecord
from tests.support.checks.audit_records import replay


def made(number: int, **members: Any) -> AuditRecord:
    """Return a record in which partition 0 of `orders` changes for the `number`-th time."""
    before = None if number == 0 else (number - 1, number - 1, (number - 1,))
    change = StateChange("orders", 0, "isr", before, (number, number, (number,)), number)
    known = {"time": 1000 * number, "cause": f"cause-{number}", "actor": "controller-1"}
    entry = AuditEntry(**{**known, "kind": "broker_change", "changes": (change,), **members})
    return AuditRecord(number, 100 + number, entry)


def all_of(store: HistoryStore) -> list[AuditRecord]:
    return store.find(AuditQuery(), cursor=None, newest_first=False, limit=1000)


def test_the_migrations_make_the_tables_that_the_code_uses(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_stored_records_are_read_back_unchanged(engine: Engine) -> None:
    store = HistoryStore(engine)
    told = {"resource": {"topic": "orders"}, "before": {"a": [1]}, "after": {"b": None}}
    records = [made(0), made(1, **told, zk={"/x": 3}), made(2, changes=())]
    store.append(records)
    assert all_of(store) == records
    assert store.ids() == (0, 2)


def test_storing_a_record_again_changes_nothing(engine: Engine) -> None:
    store = HistoryStore(engine)
    store.append([made(0), made(1)])
    store.append([made(0, cause="another"), made(1), made(2)])
    assert [record.entry.cause for record in all_of(store)] == ["cause-0", "cause-1", "cause-2"]


def test_records_are_found_by_each_of_their_members(engine: Engine) -> None:
    store = HistoryStore(engine)
    store.append(
        [
            made(0),
            made(1, actor="operator", changes=(), resource={"topic": "clicks", "partition": 3}),
            made(2, changes=(), resource={"broker": 4, "config": "retention.ms", "group": "g"}),
            made(3, outcome="refused"),
        ]
    )
    cases: list[tuple[AuditQuery, list[int]]] = [
        (AuditQuery(actor="operator"), [1]),
        (AuditQuery(cause="cause-2"), [2]),
        (AuditQuery(outcome="refused"), [3]),
        (AuditQuery(topic="orders"), [0, 3]),
        (AuditQuery(topic="orders", partition=1), []),
        (AuditQuery(topic="clicks", partition=3), [1]),
        (AuditQuery(broker=4), [2]),
        (AuditQuery(config="retention.ms", group="g"), [2]),
        (AuditQuery(since_ms=1000, until_ms=3000), [1, 2]),
        (AuditQuery(topic="orders", outcome="done"), [0]),
    ]
    for query, ids in cases:
        found = store.find(query, cursor=None, newest_first=False, limit=10)
        assert [record.id for record in found] == ids, query


def test_pages_follow_one_another_in_both_orders(engine: Engine) -> None:
    store = HistoryStore(engine)
    store.append([made(number) for number in range(5)])
    for newest_first, expected in ((False, [0, 1, 2, 3, 4]), (True, [4, 3, 2, 1, 0])):
        seen: list[int] = []
        while page := store.find(
            AuditQuery(), cursor=seen[-1] if seen else None, newest_first=newest_first, limit=2
        ):
            seen += [record.id for record in page]
        assert seen == expected


def test_expired_entries_are_deleted_and_their_state_stays(engine: Engine) -> None:
    store = HistoryStore(engine)
    records = [made(number) for number in range(5)]
    store.append(records)
    whole = store.past(time_ms=None, zxid=None)
    assert store.forget_before(3000) == 3
    assert [record.id for record in all_of(store)] == [3, 4]
    assert store.past(time_ms=None, zxid=None) == whole
    assert store.past(time_ms=None, zxid=102) == replay(records[:3])
    assert store.past(time_ms=None, zxid=101).audit_id == -1, "its entry was deleted"
    store.append([made(5)])
    assert store.ids() == (3, 5)


def test_an_entry_of_a_clock_that_is_late_takes_no_younger_ones_with_it(engine: Engine) -> None:
    """Any service may write it, and whoever writes to ZooKeeper."""
    store = HistoryStore(engine)
    store.append([made(0), made(1), made(2), made(3, time=0), made(4)])
    assert store.forget_before(1000, 5000) == 1
    assert [record.id for record in all_of(store)] == [1, 2, 3, 4]
    assert store.forget_before(3000, 5000) == 3
    assert [record.id for record in all_of(store)] == [4]


def test_no_entry_is_kept_by_one_with_a_time_to_come_nor_by_a_gap(engine: Engine) -> None:
    store = HistoryStore(engine)
    store.append([made(0, time=2**62), made(1, kind="history_gap", time=4500), made(2), made(3)])
    assert store.forget_before(3000, 5000) == 3
    assert [record.id for record in all_of(store)] == [3]


def test_entries_that_cannot_be_projected_are_stored(engine: Engine) -> None:
    """A task that an operator wrote may have any content, and must not stop the history."""
    store = HistoryStore(engine)
    failed = {"failure_timestamp": 5, "incarnation": 0, "controller_epoch": 1}
    told: list[dict[str, Any]] = [
        {"kind": "broker_failed", "resource": {"broker": 1}, "after": failed},
        {"kind": "broker_failed", "resource": {"broker": 1}, "after": failed},
        {"kind": "broker_failed", "resource": {}, "after": 7},
        {"kind": "brokers_changed", "after": {"brokers": "nobody"}},
        {
            "kind": "task_over",
            "resource": {"task": "by-hand", "kind": "heal"},
            "after": {"state": "done", "outcome": {}, "details": {"broker": [1]}},
        },
        {"kind": "broker_failed", "resource": {"broker": 2}, "after": failed},
    ]
    records = [made(number, **members) for number, members in enumerate(told)]
    store.append(records)
    assert all_of(store) == records
    assert sorted(row.broker for row in store.failures(None, 10)) == [1, 2]


def test_nothing_is_stored_twice_after_all_entries_were_deleted(engine: Engine) -> None:
    store = HistoryStore(engine)
    store.append([made(0), made(1)])
    store.forget_before(10_000)
    store.append([made(1), made(2)])
    assert [record.id for record in all_of(store)] == [2]


def test_the_past_goes_by_time_or_by_transaction(engine: Engine) -> None:
    store = HistoryStore(engine)
    records = [made(number) for number in range(4)]
    store.append(records)
    for number in range(4):
        until = replay(records[: number + 1])
        assert store.past(time_ms=1000 * number + 500, zxid=None) == until
        assert store.past(time_ms=None, zxid=100 + number) == until


def test_a_gap_does_not_change_the_past_before_it(engine: Engine) -> None:
    """A gap has the time of its detection, long after the missing entries, and no zxid."""
    store = HistoryStore(engine)
    records = [made(number) for number in range(6)]
    gap = AuditRecord(3, 0, AuditEntry(9_000, "", "controller-1", "history_gap"))
    store.append([*records[:2], gap, *records[4:]])
    for number, complete in ((0, True), (1, False), (4, False), (5, False)):
        for past in (
            store.past(time_ms=None, zxid=100 + number),
            store.past(time_ms=1000 * number, zxid=None),
        ):
            assert past.topics == replay(records[: number + 1]).topics, number
            assert (past.audit_id, past.complete) == (number, complete)


def test_transactions_are_those_of_the_zookeeper_of_the_last_restore(engine: Engine) -> None:
    store = HistoryStore(engine)
    restored = AuditRecord(3, 50, AuditEntry(3_000, "", "operator", "cluster_restored"))
    after = AuditRecord(4, 60, made(0, time=4_000).entry)
    store.append([made(0), made(1), made(2), restored, after])
    assert store.past(time_ms=None, zxid=101).audit_id == 4, "not the one of before"
    assert store.past(time_ms=None, zxid=55) == replay([restored])
    assert store.past(time_ms=None, zxid=49).audit_id == -1
    assert store.past(time_ms=1_500, zxid=None) == replay([made(0), made(1)])


def test_values_that_exceed_a_column_block_nothing(engine: Engine) -> None:
    """Refused requests are audited, too, and may contain any value."""
    store = HistoryStore(engine)
    odd = "a\0b" * 100
    told: list[dict[str, Any]] = [
        {"resource": {"topic": odd, "group": odd, "config": odd}, "reason": odd, "cause": odd},
        {"resource": {"topic": "orders", "partition": 2**40, "broker": 2**40}, "actor": odd},
    ]
    store.append([made(number, **members, changes=()) for number, members in enumerate(told)])
    found = all_of(store)
    assert [record.entry.resource for record in found] == [one["resource"] for one in told]
    assert store.find(AuditQuery(topic="orders"), cursor=None, newest_first=False, limit=10) == [
        found[1]
    ]


def test_a_failure_that_is_healed_in_parts_counts_all_parts(engine: Engine) -> None:
    """Chunks may be over before the last partition has a leader and can be queued."""
    store = HistoryStore(engine)
    when = {"failure_timestamp": 5}
    over = {
        "kind": "task_over",
        "after": {
            "state": "done",
            "outcome": {"done": 40, "bytes": 7},
            "details": {"broker": 1, **when},
        },
    }
    told: list[dict[str, Any]] = [
        {
            "kind": "broker_failed",
            "resource": {"broker": 1},
            "after": {**when, "incarnation": 0, "controller_epoch": 1},
        },
        {**over, "resource": {"task": "0", "kind": "heal"}},
        {
            "kind": "healing_queued",
            "resource": {"broker": 1},
            "after": {**when, "chunks": 1, "partitions": 40},
        },
        {**over, "resource": {"task": "1", "kind": "heal"}},
    ]
    for number, members in enumerate(told):
        store.append([made(number, changes=(), **members)])
    (row,) = store.failures(None, 10)
    assert (row.chunks, row.chunks_over, row.partitions, row.partitions_moved) == (2, 2, 80, 80)
    assert (row.outcome, row.bytes_moved, row.over_at) == ("healed", 14, 3000)


def test_a_broker_has_returned_with_the_entry_that_removes_its_failure(engine: Engine) -> None:
    store = HistoryStore(engine)
    about: dict[str, Any] = {"resource": {"broker": 1}, "changes": ()}
    noted = {"failure_timestamp": 5, "incarnation": 0, "controller_epoch": 1}
    store.append(
        [
            made(0, kind="broker_failed", after=noted, **about),
            made(1, kind="broker_returned", after=noted, **about),
        ]
    )
    (row,) = store.failures(1, 10)
    assert (row.outcome, row.returned_at) == ("cancelled", 1000)
    store.append([made(2, kind="brokers_changed", after={"brokers": [1]}, changes=())])
    assert store.failures(1, 10) == [row]


def set_aside(directory: Path, word: str) -> int:
    return len(list(directory.glob(f"history.db.{word}-*[0-9]")))


async def test_the_history_of_another_cluster_is_set_aside(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'history.db'}"
    for cluster, stored in (("one", -1), ("one", 0), ("two", -1)):
        history = SqlHistory(url)
        await history.open(cluster)
        assert (await history.ids())[1] == stored
        await history.append([made(0)])
        await history.close()
    assert set_aside(tmp_path, "other-cluster") == 1


@pytest.mark.parametrize("hanging", ["writer", "readers"])
async def test_the_end_does_not_wait_for_ever_for_a_disk_that_hangs(
    tmp_path: Path, hanging: str
) -> None:
    history = SqlHistory(f"sqlite:///{tmp_path / 'history.db'}")
    await history.open("one")
    goes_on = threading.Event()
    getattr(history, hanging).submit(goes_on.wait)
    try:
        async with asyncio.timeout(20):
            assert not await history.close(within_s=0.1)
    finally:
        goes_on.set()


async def test_the_end_waits_for_all_threads(tmp_path: Path) -> None:
    history = SqlHistory(f"sqlite:///{tmp_path / 'history.db'}")
    await history.open("one")

    assert await history.close()


def test_a_damaged_file_is_set_aside_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = HistoryStore(open_database(f"sqlite:///{path}"))
    store.append([made(number) for number in range(200)])
    store.close()
    whole = path.read_bytes()
    page = len(whole) // 4096 // 2 * 4096
    path.write_bytes(whole[:page] + b"\xff" * 4096 + whole[page + 4096 :])
    with capture_logs() as logs:
        again = HistoryStore(open_database(f"sqlite:///{path}"))
    assert again.ids() == (-1, -1)
    again.close()
    assert set_aside(tmp_path, "damaged") == 1
    assert "is set aside" in logs[0]["event"]


async def test_a_file_that_is_damaged_while_it_is_open_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    history = SqlHistory(f"sqlite:///{path}")
    await history.open("one")
    await history.append([made(number) for number in range(2_000)])
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * (path.stat().st_size - 3 * 4096))
    with pytest.raises(DatabaseError, match="malformed"):
        await history.find(AuditQuery(), cursor=None, newest_first=False, limit=2_000)
    with pytest.raises(RuntimeError, match="not open"):
        await history.append([made(2_000)])
    await history.open("one")
    assert await history.ids() == (-1, -1), "what was stored has to be read again"
    assert set_aside(tmp_path, "damaged") == 1
    await history.close()


async def test_an_error_that_is_no_damage_changes_nothing(tmp_path: Path) -> None:
    history = SqlHistory(f"sqlite:///{tmp_path / 'history.db'}")
    await history.open("one")
    with pytest.raises(DatabaseError, match="UNIQUE"):
        await history.append([made(0), made(0)])
    await history.append([made(0)])
    await history.check()
    assert await history.ids() == (0, 0)
    await history.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_gone_is_noticed(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "history.db"
    history = SqlHistory(f"sqlite:///{path}")
    await history.open("one")
    await history.append([made(0)])
    await history.check()
    if replaced:
        path.rename(tmp_path / "kept")
        path.touch()
    else:
        path.unlink()
    with pytest.raises(RuntimeError, match="deleted or replaced"):
        await history.check()
    await history.open("one")
    await history.check()
    await history.append([made(0), made(1)])
    await history.close()
    assert HistoryStore(open_database(f"sqlite:///{path}")).ids() == (0, 1)


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"this is no database " * 100)
    store = HistoryStore(open_database(f"sqlite:///{path}"))
    assert store.ids() == (-1, -1)
    store.close()


def test_tables_of_a_later_release_are_refused_and_stay_as_they_are(
    url: str, tmp_path: Path
) -> None:
    """After a rollback. It was an error with a traceback each second, which did not say why."""
    store = HistoryStore(open_database(url))
    store.append([made(0)])
    store.close()
    known = _set_revision(url, "9999")
    with pytest.raises(HistoryUnavailable, match="a later release has made the tables"):
        open_database(url)
    assert set_aside(tmp_path, "damaged") == 0
    _set_revision(url, known)
    again = HistoryStore(open_database(url))
    assert again.ids() == (0, 0)
    again.close()


def _set_revision(url: str, revision: str) -> str:
    engine = create_engine(url)
    with engine.begin() as connection:
        read = text("SELECT version_num FROM alembic_version")
        before: str = connection.execute(read).scalar_one()
        write = text("UPDATE alembic_version SET version_num = :revision")
        connection.execute(write, {"revision": revision})
    engine.dispose()
    return before


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_an_error_about_a_database_does_not_tell_its_password(url: str) -> None:
    secret = make_url(url).set(username="postgres", password="top-secret")  # noqa: S106 - no real one
    histories = [SqlHistory(secret.render_as_string(hide_password=False)) for _ in range(2)]
    await histories[0].open("one")
    with pytest.raises(RuntimeError, match="has the history of cluster one") as refused:
        await histories[1].open("two")
    assert "top-secret" not in str(refused.value)
    for history in histories:
        await history.close()


def test_a_file_that_is_temporarily_unusable_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = HistoryStore(open_database(f"sqlite:///{path}"))
    store.append([made(0)])
    store.close()
    whole = path.rename(tmp_path / "whole.db")
    path.mkdir()
    with pytest.raises(DatabaseError, match="unable to open"):
        open_database(f"sqlite:///{path}")
    assert set_aside(tmp_path, "damaged") == 0
    path.rmdir()
    whole.rename(path)
    again = HistoryStore(open_database(f"sqlite:///{path}"))
    assert again.ids() == (0, 0)
    again.close()


async def test_a_history_without_a_url_is_kept_in_memory() -> None:
    history = SqlHistory("")
    await history.open("one")
    await history.append([made(0)])
    assert await history.ids() == (0, 0)
    await history.close()


def test_databases_that_are_opened_concurrently_are_each_migrated(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        for engine in threads.map(open_database, urls):
            with engine.connect() as connection:
                assert compare_metadata(MigrationContext.configure(connection), metadata) == []
            engine.dispose()
