"""The commit of the archive's sink, against a cluster in which topics come and go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from leadline_spark.archive import catalog
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.sink import ArchivedFiles, ArchiveWriter
from leadline_spark.archive.storage import LocalStore
from leadline_spark.errors import LeadlineSparkError
from tests.unit.spark.archives import TOPIC_ID, data_file
from tests.unit.spark.standin import Said, metadata, refusal, stand_in


def committed(folder: Path, *answers: Said) -> list[ManifestEntry]:
    """Commit ten records of a topic that had TOPIC_ID, and return what the archive has then."""
    store = LocalStore(folder)
    run, _ = catalog.begin_run(store)
    # As tasks write them: they do not know the id.
    files = ArchivedFiles((replace(data_file(store, 0, 9), topic_id=""),))
    left = list(answers)
    with stand_in() as broker:
        broker.answer = lambda _: left.pop(0)
        ids = json.dumps({"t": TOPIC_ID})
        options = {"bootstrap": broker.url, "path": str(folder), "run": str(run), "ids": ids}
        ArchiveWriter(options).commit([files], 0)
    return catalog.holdings(store)


def test_records_of_a_topic_that_was_recreated_before_the_commit_do_not_get_its_id(
    tmp_path: Path,
) -> None:
    with pytest.raises(LeadlineSparkError, match=r"ARCHIVE_CONFLICT.*recreated"):
        committed(tmp_path, metadata({}, {"t": ("new", [])}))
    assert catalog.holdings(LocalStore(tmp_path)) == []


def test_the_last_records_of_a_deleted_topic_keep_its_id(tmp_path: Path) -> None:
    assert [entry.topic_id for entry in committed(tmp_path, metadata({}, {}))] == [TOPIC_ID]


def test_a_commit_waits_for_brokers_that_answer_nothing_for_a_while(tmp_path: Path) -> None:
    there = metadata({}, {"t": (TOPIC_ID, [])})
    entries = committed(tmp_path, refusal(503, 50350, retriable=True), there)
    assert [entry.topic_id for entry in entries] == [TOPIC_ID]
