"""Past states from the entries that still matter equal those from every entry."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, event

from leadline_common.znodes import AuditEntry, StateChange
from leadline_controller.adapters.history import past
from leadline_controller.adapters.history.database import IN_MEMORY, open_database
from leadline_controller.adapters.history.store import HistoryStore
from leadline_controller.adapters.history.tables import metadata
from leadline_controller.domain.history import (
    CLUSTER_RESTORED,
    CONTROLLER_ELECTED,
    EXTERNAL,
    HISTORY_GAP,
    REASSIGNMENT_STEP,
    TOPIC_DELETED,
    TOPIC_DELETION_ORDERED,
    UNAUDITED_CHANGES,
    UNKNOWN,
    AuditRecord,
    PastCluster,
)
from tests.support.checks.audit_records import replay

Members = dict[str, Any]
STEP_MS = 10

topics = st.sampled_from(["orders", "clicks"])
numbers = st.integers(0, 2)
replicas = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)
states = st.tuples(st.integers(-1, 4), st.integers(0, 9), replicas.map(tuple))
changes = st.builds(
    StateChange, topics, numbers, st.just("isr"), st.none(), states, st.integers(0, 99)
)
resources = st.builds(
    lambda topic, topic_id: {"topic": topic, "topic_id": topic_id},
    topics,
    st.sampled_from(["one", "another", None]),
)


def by_number(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(numbers.map(str), values, max_size=3)


unfit: st.SearchStrategy[Members] = st.sampled_from(
    [
        {"kind": "topic_created", "resource": {"topic": 5}},
        {"kind": "topic_created", "resource": {"topic": "orders", "topic_id": 5}, "after": {}},
        {
            "kind": "topic_created",
            "resource": {"topic": "orders"},
            "after": {"assignment": {"0": [7], "x": 5, "1": [7]}},
        },
        {"kind": REASSIGNMENT_STEP, "resource": {"topic": "orders"}, "after": {"0": {}}},
        {"kind": "brokers_changed", "after": {"brokers": "nobody"}},
    ]
)
members: st.SearchStrategy[Members] = st.one_of(
    st.just({"kind": "isr_change"}),
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["topic_created", "partitions_removed"]),
            "resource": resources,
            "after": st.fixed_dictionaries({"assignment": by_number(st.none() | replicas)}),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from([TOPIC_DELETED, TOPIC_DELETION_ORDERED, "create_topic"]),
            "resource": resources,
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just(REASSIGNMENT_STEP),
            "resource": resources,
            "after": by_number(st.fixed_dictionaries({"replicas": replicas})),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just(CONTROLLER_ELECTED),
            "after": st.none() | st.fixed_dictionaries({"id": st.integers(1, 3)}),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["brokers_changed", "whatever"]),
            "after": st.fixed_dictionaries({"brokers": st.lists(st.integers(1, 4))}),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just(UNAUDITED_CHANGES),
            "after": st.fixed_dictionaries({"since": st.integers(0, 12)}),
            "reason": st.just("changed by others"),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["topic_changed", "states_changed"]),
            "actor": st.just(EXTERNAL),
            "outcome": st.sampled_from([UNKNOWN, UNKNOWN, "done"]),
            "reason": st.sampled_from(["", "too large"]),
        }
    ),
    st.just({"kind": CLUSTER_RESTORED}),
    st.fixed_dictionaries(
        {"kind": st.just(HISTORY_GAP), "reason": st.sampled_from(["", "entries are lost"])}
    ),
    unfit,
)


class Written(msgspec.Struct, frozen=True):
    """An entry to be written: its members, and how far its time is off and its zxid further."""

    members: Members
    changes: list[StateChange]
    off_ms: int
    further: int


written = st.builds(
    Written,
    members,
    st.lists(changes, max_size=3),
    off_ms=st.just(0) | st.integers(-3 * STEP_MS, 3 * STEP_MS),
    further=st.integers(0, 2),
)
isr_changes = st.builds(
    Written,
    st.just({"kind": "isr_change"}),
    st.lists(changes, min_size=1, max_size=2),
    off_ms=st.just(0),
    further=st.just(1),
)


def plain(**told: Any) -> Written:
    return Written(told, [], off_ms=0, further=1)


ISR_CHANGE = Written(
    {"kind": "isr_change"}, [StateChange("orders", 0, "isr", None, (1, 4, (1,)), 0)], 0, 1
)
ELECTED = plain(kind=CONTROLLER_ELECTED, after={"id": 1})
NOBODY_ELECTED = plain(kind=CONTROLLER_ELECTED)
DELETED = plain(kind=TOPIC_DELETED, resource={"topic": "orders"})
NOT_KNOWN = plain(kind="states_changed", actor=EXTERNAL, outcome=UNKNOWN, reason="too large")
expiries = st.integers(0, 12 * STEP_MS)
histories = st.lists(st.lists(written | isr_changes, min_size=1, max_size=5) | expiries, max_size=5)


class Replayed:
    """The history as records in memory, whose past states are replays of every record."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []
        self.kept = PastCluster()
        self._ids = itertools.count()
        self._zxid = 100

    def write(self, batch: Sequence[Written]) -> list[AuditRecord]:
        """Append records, and return them."""
        made = [self._record(next(self._ids), one) for one in batch]
        self.records += made
        return made

    def _record(self, number: int, one: Written) -> AuditRecord:
        known = {"actor": "controller-1", **one.members}
        is_gap = known["kind"] == HISTORY_GAP
        self._zxid = 50 if known["kind"] == CLUSTER_RESTORED else self._zxid + one.further
        time = max(0, STEP_MS * number + one.off_ms)
        entry = AuditEntry(time=time, cause="c", changes=tuple(one.changes), **known)
        return AuditRecord(number, 0 if is_gap else self._zxid, entry)

    def forget_before(self, time_ms: int) -> int:
        """Delete expired records, and keep their sum; return how many."""
        young = [
            one.id
            for one in self.records
            if one.entry.time >= time_ms and one.entry.kind != HISTORY_GAP
        ]
        before = [one for one in self.records if one.id < min(young, default=one.id + 1)]
        old = max((one.id for one in before if one.entry.time < time_ms), default=-1)
        gone = [one for one in self.records if one.id <= old]
        self.kept = replay(gone, self.kept)
        self.records = self.records[len(gone) :]
        return len(gone)

    def past(self, *, time_ms: int | None, zxid: int | None) -> PastCluster:
        """Rebuild the cluster from every record."""
        restored = max((r.id for r in self.records if r.entry.kind == CLUSTER_RESTORED), default=0)
        until = [
            one.id
            for one in self.records
            if (time_ms is None or one.entry.time <= time_ms)
            and (zxid is None or (1 <= one.zxid <= zxid and one.id >= restored))
        ]
        if not until:
            is_younger = time_ms is not None and self.kept.time > time_ms
            is_other = zxid is not None and (self.kept.zxid > zxid or restored > 0)
            return PastCluster() if is_younger or is_other else self.kept
        newest = max(until)
        known = [one for one in self.records if one.id <= newest]
        cluster = replay(known, copy.deepcopy(self.kept))
        if time_ms is not None or zxid is not None:
            self._doubt(cluster, self.records[len(known) :])
        return cluster

    def _doubt(self, cluster: PastCluster, later: Sequence[AuditRecord]) -> None:
        if later and later[0].entry.kind == HISTORY_GAP:
            cluster.miss("audit entries are lost, which may belong to this past")
        found = [one.entry for one in later if one.entry.kind == UNAUDITED_CHANGES]
        if found and found[0].after["since"] <= cluster.audit_id:
            cluster.miss(found[0].reason)


def check(engine: Engine, history: Sequence[list[Written] | int]) -> None:
    """Have both histories written, and compare all their past states."""
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(delete(table))
    store, expected = HistoryStore(engine), Replayed()
    for step in history:
        if isinstance(step, int):
            assert store.forget_before(step) == expected.forget_before(step)
        else:
            store.append(expected.write(step))
        times = {one.entry.time for one in expected.records} | {0, 10_000}
        zxids = {one.zxid for one in expected.records} | {1, 10_000}
        for time_ms, zxid in [
            (None, None),
            *((t, None) for t in times),
            *((None, z) for z in zxids),
        ]:
            found = store.past(time_ms=time_ms, zxid=zxid)
            assert found == expected.past(time_ms=time_ms, zxid=zxid), (time_ms, zxid)


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_a_past_state_equals_the_replay_of_every_entry(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(past, "_PAGE", 3)
    examples = times * (20 if engine.dialect.name == "sqlite" else 4)

    @settings(max_examples=examples)
    @given(histories)
    @example([[NOT_KNOWN, ISR_CHANGE]])
    @example([[ELECTED, NOBODY_ELECTED, ISR_CHANGE]])
    @example([[ISR_CHANGE, DELETED, plain(kind="isr_change")]])
    def holds(history: list[list[Written] | int]) -> None:
        check(engine, history)

    holds()


def test_a_past_state_reads_no_entry_that_later_ones_have_replaced() -> None:
    """Counted are all rows that the database hands over."""
    engine = open_database(IN_MEMORY)
    store, partitions, entries = HistoryStore(engine), 20, 5_000
    every_change = []
    for number in range(entries):
        change = StateChange("orders", number % partitions, "isr", None, (1, 4, (1,)), number)
        every_change.append(Written({"kind": "isr_change"}, [change], 0, 1))
    elections = [Written({"kind": CONTROLLER_ELECTED, "after": {"id": 1}}, [], 0, 1)] * 30
    expected = Replayed()
    store.append(expected.write([*elections, *every_change]))
    handed_over = 0

    def count(_cursor: object, row: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal handed_over
        handed_over += 1
        return row

    with engine.connect() as connection:
        driver_connection: Any = connection.connection.driver_connection
        driver_connection.row_factory = count
    for number in (entries // 2, entries):
        handed_over = 0
        time_ms = STEP_MS * number
        assert store.past(time_ms=time_ms, zxid=None) == expected.past(time_ms=time_ms, zxid=None)
        few = 10
        assert partitions + len(elections) <= handed_over <= partitions + len(elections) + few
    store.close()


def test_the_latest_changes_are_found_in_an_index_alone() -> None:
    """SQLite would otherwise read all changes from their table, and sort them."""
    engine = open_database(IN_MEMORY)
    store, asked = HistoryStore(engine), []
    store.append(Replayed().write([ISR_CHANGE] * 3))

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_others: Any) -> None:
        if "GROUP BY" in statement:
            asked.append((statement, values))

    event.listen(engine, "before_cursor_execute", note)
    store.past(time_ms=None, zxid=None)
    event.remove(engine, "before_cursor_execute", note)
    ((statement, values),) = asked
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    assert "SCAN state_change USING COVERING INDEX state_change_partition" in {
        row[3] for row in plan
    }
    store.close()
