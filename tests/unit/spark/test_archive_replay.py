"""What a replay sends: the archived records, byte for byte, in batches that a leader accepts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.domain import publishes
from leadline_client.wire import TopicPartition
from leadline_spark.archive import partition_replay
from leadline_spark.archive.parquet import SCHEMA, RowGroups
from leadline_spark.archive.partition_replay import (
    PartitionReplay,
    batches,
    publisher_id,
    row_group_chunks,
    uploads,
)
from leadline_spark.archive.storage import LocalStore
from leadline_spark.cluster.cluster_client import Connection
from leadline_spark.codec.stored_batches import decode, stored_headers
from leadline_spark.errors import LeadlineSparkError
from tests.unit.spark.archives import data_file, records

COLUMNS = ("timestamp", "timestampType", "key", "value", "headers")
BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": BYTES}), max_size=3)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "timestamp": st.integers(0, 2_000_000_000_000),
            "timestampType": st.sampled_from([0, 0, 0, 1]),
            "key": BYTES,
            "value": BYTES,
            "headers": HEADERS,
        }
    ),
    min_size=1,
    max_size=40,
)


def _archived(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return the records as an archive has them; times are given in ms."""
    placed = [
        {**row, "offset": at, "leaderEpoch": 0, "timestamp": row["timestamp"] * 1_000}
        for at, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(placed, schema=SCHEMA)


def _sent(data: bytes) -> list[dict[str, Any]]:
    """Return what a reader would find in a batch; a record without headers has an empty list."""
    found = [
        row for batch in decode(data, 0, 1 << 40, COLUMNS, "t", 0) for row in batch.to_pylist()
    ]
    return [{**row, "headers": row["headers"] or []} for row in found]


def _plain(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    return [
        {name: row[name] for name in COLUMNS} | {"headers": row["headers"] or []}
        for row in rows.to_pylist()
    ]


@given(RECORDS)
def test_what_is_sent_is_what_was_archived(rows: list[dict[str, Any]]) -> None:
    archived = _archived(rows)
    sent = [row for batch in batches(archived) for row in _sent(batch)]
    assert sent == _plain(archived)


def test_a_batch_holds_no_more_than_a_broker_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_replay, "BATCH_BYTES", 300)
    archived = records(range(200))
    made = list(batches(archived))
    assert len(made) > 10
    assert [row for batch in made for row in _sent(batch)] == _plain(archived)


def test_chunks_are_row_groups_one_behind_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowGroups.__init__, "__defaults__", (60, 1 << 20))
    monkeypatch.setattr(partition_replay, "UPLOAD_BYTES", 1)
    monkeypatch.setattr(partition_replay, "BATCH_BYTES", 1_000)
    store = LocalStore(tmp_path)
    # It begins at offset 500 in the archive, and at 0 in the new topic.
    files = (data_file(store, 500, 599), data_file(store, 600, 749))
    todo = PartitionReplay(
        str(tmp_path), files, TopicPartition("u", 0), "app", Connection(("http://b",))
    )
    chunks = row_group_chunks(todo)
    assert [(chunk.number, chunk.start, chunk.end) for chunk in chunks] == [
        (0, 0, 60),
        (1, 60, 100),
        (2, 100, 160),
        (3, 160, 220),
        (4, 220, 250),
    ]
    assert all(one.end == two.start for one, two in pairwise(chunks))
    once, again = ([list(uploads(str(tmp_path), one)) for one in chunks] for _ in range(2))
    assert once == again
    assert len(once[0]) > 1
    values = [row["value"] for chunk in once for part in chunk for row in _sent(part)]
    assert values == [row["value"] for row in records(range(500, 750)).to_pylist()]
    assert all(sum(1 for _ in stored_headers(part)) == 1 for chunk in once for part in chunk)


def test_a_file_with_fewer_records_than_its_manifest_says_is_not_replayed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    whole, part = data_file(store, 0, 99), data_file(store, 0, 49, partition=1)
    todo = PartitionReplay(
        str(tmp_path), (whole,), TopicPartition("u", 0), "app", Connection(("http://b",))
    )
    for damage in (
        lambda: (tmp_path / part.path).replace(tmp_path / whole.path),  # such as an old copy
        lambda: store.delete(whole.path),
    ):
        damage()
        with pytest.raises(LeadlineSparkError, match=whole.path) as raised:
            row_group_chunks(todo)
        assert raised.value.code == "LEADLINE_ARCHIVE_DAMAGED"


@given(st.text(min_size=1))
def test_published_batches_are_known_by_what_leaders_write(app: str) -> None:
    assert publisher_id(app) == publishes.publisher_id(app)
