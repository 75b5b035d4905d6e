"""The cluster as tables, without Spark: rows by column, ranges of ids, and what is lost."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options
from leadline_spark.read.offsets import EARLIEST, LATEST
from leadline_spark.tables.columns import TABLES, arrow_schema, batch_of, read_row, table_schema
from leadline_spark.tables.id_ranges import IdRange, deleted_part, gaps, resolved, split_ids
from leadline_spark.tables.source import AuditStreamReader, TableRead, TableSource
from tests.unit.spark.exported_audit import ExportedAudit, exported_audit, recorded

T = TypeVar("T")
PAGE = Path(__file__).parents[3] / "docs" / "tables.md"
BROKER = {
    "metadata_version": 77,
    "id": 2,
    "url": "http://127.0.0.1:9092",
    "host": "127.0.0.1",
    "port": 9092,
    "rack": None,
    "incarnation": 4,
    "leaders": 80,
    "replicas": 240,
    "draining": False,
    "stopping": True,
}


@pytest.fixture
def server() -> Iterator[ExportedAudit]:
    with exported_audit() as running:
        yield running


def options(server: ExportedAudit, **given: str) -> Options:
    table = {"bootstrap": server.url, "table": "audit"}
    return Options(OPTIONS, {**table, **{name.lower(): value for name, value in given.items()}})


def rows_of(server: ExportedAudit, **given: str) -> list[dict[str, Any]]:
    """Return the rows of a batch read, task by task."""
    source = TableSource(options(server, **given))
    source.schema()
    reader: Any = pickled(source.reader())
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [row for batch in batches for row in batch.to_pylist()]


def pickled(value: T) -> T:
    """Return a copy that was pickled, as Spark sends it to executors."""
    copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301 - by the line itself
    return copy


def code_of(raised: pytest.ExceptionInfo[LeadlineSparkError]) -> str:
    return raised.value.code


# -- rows ----------------------------------------------------------------------


def test_an_entry_of_the_audit_by_its_columns() -> None:
    entry = next(e for e in recorded() if e["kind"] == "broker_change")
    schema = table_schema("audit")
    (row,) = batch_of([read_row("audit", json.dumps(entry).encode())], schema).to_pylist()
    for name in ("id", "zxid", "time", "cause", "actor", "kind", "outcome", "reason", "changes"):
        assert row[name] == entry[name]
    assert row["at"] == datetime.fromtimestamp(entry["time"] / 1000, UTC)
    assert json.loads(row["after"]) == entry["after"]
    assert row["before"] is None
    assert row["noticed_at"].timestamp() * 1000 == entry["after"]["noticed_at"]
    assert row["topic"] is None
    assert row["changes"][0]["before"]["isr"] == entry["changes"][0]["before"]["isr"]


def test_what_an_entry_is_about_has_columns() -> None:
    failed = next(e for e in recorded() if e["kind"] == "broker_failed")
    created = next(e for e in recorded() if e["kind"] == "topic_created")
    odd = {**failed, "resource": {"broker": "one", "topic": 1, "task": "7"}, "after": [1]}
    first, second, third = (
        read_row("audit", json.dumps(entry).encode()) for entry in (failed, created, odd)
    )
    assert (first["broker"], first["topic"]) == (1, None)
    assert (second["topic"], second["broker"]) == ("orders", None)
    assert (third["broker"], third["topic"], third["task"]) == (None, None, "7")


@pytest.mark.parametrize("number", [2**31, 2**63, -(2**31) - 1, 10**400])
def test_a_number_that_its_column_cannot_hold_is_only_in_the_json(number: int) -> None:
    # As in the entry of a refused `POST /v1/brokers/99999999999/drain`.
    refused = {**recorded()[0], "resource": {"broker": number}, "after": {"noticed_at": number}}
    rows = [read_row("audit", json.dumps(refused).encode())]
    (row,) = batch_of(rows, table_schema("audit")).to_pylist()
    assert row["broker"] is None
    assert json.loads(row["resource"]) == {"broker": number}


def test_a_value_that_its_column_cannot_hold_is_named_as_a_fault_of_the_table() -> None:
    for value in (2**40, "one", 2**70):
        with pytest.raises(LeadlineSparkError) as raised:
            batch_of([{**BROKER, "port": value}], table_schema("brokers"))
        assert code_of(raised) == "LEADLINE_TABLE_INVALID"


def test_every_entry_of_a_real_history_is_a_row() -> None:
    entries = recorded()
    rows = [read_row("audit", json.dumps(entry).encode()) for entry in entries]
    batch = batch_of(rows, table_schema("audit"))
    assert batch.num_rows == len(entries)
    assert batch.schema == arrow_schema(table_schema("audit"))


def test_a_group_with_what_its_members_own() -> None:
    member = {
        "id": "billing-1",
        "instance_id": None,
        "client_id": "billing",
        "topics": ["orders"],
        "pattern": None,
        "threads": 1,
        "connected": True,
        "owned": [["orders", [0, 1]]],
    }
    group = {
        "group": "billing",
        "state": "stable",
        "protocol": "cooperative",
        "assignor": "sticky",
        "generation": 7,
        "coordinator_epoch": 3,
        "members": [member],
        "last_rebalance": "asked for",
        "rebalancing_since": 1_000,
        "last_error": None,
    }
    line = json.dumps(group).encode()
    (row,) = batch_of([read_row("groups", line)], table_schema("groups")).to_pylist()
    assert row["members"][0]["owned"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert row["rebalancing_since"] == datetime.fromtimestamp(1, UTC)


def test_wanted_columns_in_their_order() -> None:
    schema = table_schema("brokers", ("port", "id"))
    batch = batch_of([read_row("brokers", json.dumps(BROKER).encode())], schema)
    assert batch.to_pylist() == [{"port": 9092, "id": 2}]
    with pytest.raises(LeadlineSparkError, match="Did you mean rack"):
        table_schema("brokers", ("rck",))


@pytest.mark.parametrize("table", TABLES)
def test_the_page_names_every_column_with_its_type(table: str) -> None:
    part = PAGE.read_text().partition(f"### {table}\n")[2].partition("\n### ")[0]
    shown = re.findall(r"^\| (\w+) \| ([\w ]+) \|", part, re.MULTILINE)[1:]
    named = {"bigint": "long", "int": "integer"}
    kinds = [(name, named.get(kind, kind).partition(" of ")[0]) for name, kind in shown]
    assert kinds == [(field.name, field.dataType.typeName()) for field in table_schema(table)]


@pytest.mark.parametrize("table", TABLES)
def test_no_rows_are_a_batch_too(table: str) -> None:
    batch = batch_of([], table_schema(table))
    assert (batch.num_rows, len(batch.schema)) == (0, len(table_schema(table)))


def test_arrow_has_the_types_that_spark_expects() -> None:
    arrow = arrow_schema(table_schema("audit"))
    assert arrow.field("at").type == pa.timestamp("us", "UTC")
    assert arrow.field("partition").type == pa.int32()
    change = arrow.field("changes").type.value_type
    assert change.field("before").type.field("isr").type == pa.list_(pa.int32())


# -- ids -----------------------------------------------------------------------


@given(
    start=st.integers(0, 1_000),
    size=st.integers(0, 500),
    most=st.none() | st.integers(1, 600),
    least=st.none() | st.integers(1, 600),
)
def test_pieces_make_up_the_range(start: int, size: int, most: int | None, least: int) -> None:
    pieces = split_ids(IdRange(start, start + size), most, least)
    ids = [number for piece in pieces for number in range(piece.start, piece.end)]
    assert ids == list(range(start, start + size))
    assert all(piece.size > 0 for piece in pieces)
    assert all(piece.size <= (most or size) for piece in pieces)
    assert len(pieces) >= min(least or 0, size)


@given(found=st.sets(st.integers(0, 30)), start=st.integers(0, 10))
def test_gaps_and_what_came_make_up_the_range(found: set[int], start: int) -> None:
    came = sorted(number for number in found if number >= start)
    missing = [n for gap in gaps(IdRange(start, 31), came) for n in range(gap.start, gap.end)]
    assert sorted(missing + came) == list(range(start, came[-1] + 1 if came else start))


def test_bounds_and_what_is_gone() -> None:
    there = IdRange(10, 20)
    assert resolved(EARLIEST, LATEST, there) == there
    assert resolved(12, LATEST, there) == IdRange(12, 20)
    assert deleted_part(IdRange(12, 20), there) is None
    assert deleted_part(IdRange(3, 20), there) == IdRange(3, 10)
    assert deleted_part(IdRange(3, 5), there) == IdRange(3, 5)
    assert IdRange.from_head({"oldest": -1, "head": -1}) == IdRange(0, 0)


# -- reading -------------------------------------------------------------------


def test_a_batch_read_is_the_whole_audit_in_parts(server: ExportedAudit) -> None:
    entries = recorded()
    assert [row["id"] for row in rows_of(server, maxRecordsPerPartition="50")] == [
        entry["id"] for entry in entries
    ]
    assert len([path for path in server.asked if "after" in path]) == -(-len(entries) // 50)
    some = rows_of(server, startingOffsets="7", endingOffsets="9", columns="id,kind")
    assert some == [{"id": e["id"], "kind": e["kind"]} for e in entries[7:9]]


def test_what_is_added_later_is_not_in_a_snapshot(server: ExportedAudit) -> None:
    *known, last = server.entries
    server.entries = known
    source = TableSource(options(server))
    source.schema()
    server.entries = [*known, last]
    reader = source.reader()
    assert sum(task.ids.size for task in reader.partitions()) == len(known)  # type: ignore[attr-defined]  # our own tasks


def test_entries_that_are_gone_are_an_error_unless_that_is_accepted(server: ExportedAudit) -> None:
    server.entries = server.entries[5:]
    assert [row["id"] for row in rows_of(server)][:1] == [5], "earliest is what there is"
    with pytest.raises(LeadlineSparkError, match=r"\[2, 5\)") as raised:
        rows_of(server, startingOffsets="2")
    assert code_of(raised) == "LEADLINE_DATA_LOSS"
    lenient = rows_of(server, startingOffsets="2", failOnDataLoss="false")
    assert [row["id"] for row in lenient][:1] == [5]


@pytest.mark.parametrize(("kept", "missing"), [((40, 44), "[40, 44)"), ((160, 166), "[160, 166)")])
def test_a_hole_in_the_history_is_an_error(
    server: ExportedAudit, kept: tuple[int, int], missing: str
) -> None:
    source = TableSource(options(server))
    source.schema()  # pinned before they went
    whole = list(server.entries)
    server.entries = [e for e in whole if not kept[0] <= e["id"] < kept[1]]
    reader = source.reader()
    with pytest.raises(LeadlineSparkError) as raised:
        [*reader.read(reader.partitions()[0])]
    assert code_of(raised) == "LEADLINE_DATA_LOSS"
    assert missing in str(raised.value)


def test_a_change_of_controllers_is_waited_for_and_no_longer(server: ExportedAudit) -> None:
    server.refusals = 2
    assert len(rows_of(server)) == len(recorded())
    server.refusals = 10**6
    with pytest.raises(LeadlineSparkError, match="taking over"):
        rows_of(server, fetchDeadlineMs="1")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"table": "topics"}, "LEADLINE_OPTION_INVALID"),
        ({"subscribe": "orders"}, "LEADLINE_OPTION_CONFLICT"),
        ({"table": "brokers", "startingOffsets": "1"}, "LEADLINE_OPTION_CONFLICT"),
        ({"startingOffsets": "yesterday"}, "LEADLINE_OPTION_INVALID"),
        ({"startingOffsets": "latest"}, "LEADLINE_OPTION_INVALID"),
        ({"endingOffsets": "earliest"}, "LEADLINE_OPTION_INVALID"),
        ({"startingOffsets": "9", "endingOffsets": "7"}, "LEADLINE_OFFSETS_INVALID"),
        ({"endingOffsets": "1000000"}, "LEADLINE_OFFSETS_INVALID"),
        ({"startingOffsets": "9" * 5_000}, "LEADLINE_OPTION_INVALID"),
        ({"columns": "colour"}, "LEADLINE_OPTION_INVALID"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    server: ExportedAudit, given: dict[str, str], code: str
) -> None:
    with pytest.raises(LeadlineSparkError) as raised:
        rows_of(server, **given)
    assert code_of(raised) == code


# -- streams -------------------------------------------------------------------


def stream(server: ExportedAudit, **given: str) -> AuditStreamReader:
    found = TableSource(options(server, **given)).stream_reader()
    assert isinstance(found, AuditStreamReader)
    return found


def test_a_stream_goes_through_the_history_by_its_limit(server: ExportedAudit) -> None:
    reader = stream(server, maxOffsetsPerTrigger="60")
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(60)
    start, ids = reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        assert end["audit"] - start["audit"] <= 60
        for task in reader.partitions(start, end):
            for batch in reader.read(task):
                ids += batch.column("id").to_pylist()
        start = end
    assert ids == [entry["id"] for entry in recorded()]


def test_what_came_during_a_crash_of_the_first_batch_at_latest_is_not_lost(
    server: ExportedAudit,
) -> None:
    whole = list(server.entries)
    server.entries = whole[:100]
    first = AuditStreamReader(
        TableRead.of(options(server, startingOffsets="latest")),
        clock=itertools.count(0, 10).__next__,
    )
    begin = first.initialOffset()
    server.entries = whole[:140]
    planned = first.latestOffset(begin, ReadAllAvailable())
    assert planned == begin, "the first batch is empty, whatever came meanwhile"
    assert first.latestOffset(begin, ReadAllAvailable()) == {"audit": 140}
    server.entries = whole
    again = stream(server, startingOffsets="latest")
    assert again.initialOffset()["audit"] == len(whole)
    assert again.partitions(again.initialOffset(), planned) == [], "planned by the first run"
    assert again.latestOffset(planned, ReadAllAvailable()) == {"audit": len(whole)}
    with pytest.raises(LeadlineSparkError, match="ends before it begins"):
        again.partitions({"audit": 7}, {"audit": 3})


def test_an_idle_stream_asks_once_a_second_at_most(server: ExportedAudit) -> None:
    reader = stream(server)
    start = {"audit": len(recorded())}
    for _ in range(3):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        reader.reportLatestOffset()
    assert len(server.asked) == 1


def test_a_cluster_that_is_away_for_a_moment_ends_neither_stream_nor_task(
    server: ExportedAudit,
) -> None:
    reader = stream(server)
    reader._clock = iter(range(0, 100, 5)).__next__  # each look finds the one before too old
    reader.initialOffset()
    server.silences = 3
    end = reader.latestOffset({"audit": 0}, ReadAllAvailable())
    server.silences = 3
    [task] = reader.partitions({"audit": 0}, end)
    assert sum(batch.num_rows for batch in reader.read(task)) == len(recorded())


def test_an_address_where_nobody_is_is_an_error_at_once(server: ExportedAudit) -> None:
    server.silences = 10**6
    with pytest.raises(LeadlineSparkError, match="LEADLINE_CLUSTER_UNREACHABLE"):
        stream(server).initialOffset()


def test_a_history_that_is_shorter_than_what_was_read_is_an_error(server: ExportedAudit) -> None:
    reader = stream(server)
    with pytest.raises(LeadlineSparkError) as raised:
        reader.latestOffset({"audit": 10_000}, ReadAllAvailable())
    assert code_of(raised) == "LEADLINE_DATA_LOSS"


def test_a_checkpoint_goes_on_at_its_cluster_alone(server: ExportedAudit) -> None:
    """Ids begin at 0 in every cluster: those of a checkpoint are other entries in another one."""
    server.cluster_id = "here"
    begin = stream(server).initialOffset()
    end = stream(server).latestOffset(begin, ReadMaxRows(9))
    assert (begin, end) == ({"audit": 0, "@cluster": "here"}, {"audit": 9, "@cluster": "here"})
    [task] = stream(server).partitions(begin, end)
    assert sum(batch.num_rows for batch in stream(server).read(task)) == 9

    server.cluster_id = "there"
    prepared = stream(server)
    prepared.prepareForTriggerAvailableNow()
    replayed = stream(server)
    start = replayed.initialOffset()
    calls: list[Callable[[], object]] = [
        partial(stream(server).latestOffset, end, ReadAllAvailable()),
        partial(prepared.latestOffset, end, ReadAllAvailable()),
        partial(replayed.partitions, start, end),
        lambda: list(stream(server).read(task)),
    ]
    for call in calls:
        with pytest.raises(LeadlineSparkError, match=r"LEADLINE_CLUSTER_CHANGED.*here.*there"):
            call()


def test_a_checkpoint_of_an_earlier_release_names_no_cluster(server: ExportedAudit) -> None:
    server.cluster_id = "here"
    end = stream(server).latestOffset({"audit": 3}, ReadMaxRows(1))
    assert end == {"audit": 4, "@cluster": "here"}


@pytest.mark.parametrize(
    "offset",
    [
        *(None, 5, [], {}, {"audit": None}, {"audit": "5"}, {"audit": True}, {"audit": -2}),
        {"audit": {"0": 5}, "@ids": {"audit": "id"}},  # a stream of a topic of this name
    ],
)
def test_the_checkpoint_of_another_stream_is_refused(server: ExportedAudit, offset: Any) -> None:
    reader = stream(server)
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_OFFSETS_INVALID.*new one"):
        reader.latestOffset(offset, ReadAllAvailable())
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_OFFSETS_INVALID.*new one"):
        reader.partitions({"audit": 0}, offset)


def test_only_the_audit_can_be_followed(server: ExportedAudit) -> None:
    with pytest.raises(LeadlineSparkError, match="only audit"):
        TableSource(options(server, table="brokers")).stream_reader()


def test_a_reader_can_be_pickled(server: ExportedAudit) -> None:
    reader = stream(server)
    reader.initialOffset()
    copy = pickled(reader)
    assert copy.initialOffset() == reader.initialOffset()
    wanted = TableRead.of(options(server))
    assert isinstance(pickled(wanted).schema, StructType)
