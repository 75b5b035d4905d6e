"""Answers of the history while its writer deletes expired entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.adapters.history.database import open_database
from leadline_controller.adapters.history.store import HistoryStore
from leadline_controller.domain.history import AuditQuery, AuditRecord


@contextmanager
def interrupted(engine: Engine, reads: str, work: Callable[[], object]) -> Iterator[None]:
    """Have `work` done once, after the first query of the block that reads a table."""
    is_done = False

    def after(_connection: Any, _cursor: Any, statement: str, *_others: Any) -> None:
        nonlocal is_done
        if f"FROM {reads}" in statement and not is_done:
            is_done = True
            work()

    event.listen(engine, "after_cursor_execute", after)
    try:
        yield
    finally:
        event.remove(engine, "after_cursor_execute", after)
    assert is_done


@pytest.fixture
def writer(engine: Engine, url: str) -> Iterator[HistoryStore]:
    """Yield the store of a writer with connections of its own to the same database."""
    store = HistoryStore(open_database(url))
    store.append([changed(number) for number in range(6)])
    yield store
    store.close()


def changed(number: int) -> AuditRecord:
    """Return a record in which a partition of its own gets a leader."""
    change = StateChange("orders", number, "new", None, (1, 0, (1,)), 0)
    return AuditRecord(number, 1 + number, AuditEntry(number, "", "a", "kind", changes=(change,)))


def test_a_past_lacks_nothing_that_is_deleted_while_it_is_rebuilt(
    engine: Engine, writer: HistoryStore
) -> None:
    store = HistoryStore(engine)
    whole = store.past(time_ms=None, zxid=None)
    assert len(whole.topics["orders"].partitions) == 6
    with interrupted(engine, "snapshot", lambda: writer.forget_before(4)):
        assert store.past(time_ms=None, zxid=None) == whole
    assert store.ids() == (4, 5)
    assert store.past(time_ms=None, zxid=None) == whole


def test_an_entry_that_is_found_has_its_changes_even_if_it_is_deleted_meanwhile(
    engine: Engine, writer: HistoryStore
) -> None:
    """Other controllers copy what they are given, and would lack the changes for ever."""
    store = HistoryStore(engine)
    with interrupted(engine, "audit", lambda: writer.forget_before(4)):
        found = store.find(AuditQuery(), cursor=None, newest_first=False, limit=3)
    assert found == [changed(number) for number in range(3)]
    assert store.ids() == (4, 5)
