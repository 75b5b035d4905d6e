"""What an archive holds, by the names of its files and its manifests."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import Manifest, ManifestEntry
from leadline_spark.archive.naming import (
    DataName,
    ManifestName,
    data_name,
    is_temporary,
    manifest_name,
    temporary_path,
)
from leadline_spark.errors import LeadlineSparkError
from tests.unit.spark.archives import entry

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=12)
OFFSETS = st.integers(0, 2**63 - 1)

EMPTY = Manifest((), {}, {})


@given(TOPICS, st.integers(0, 10_000), OFFSETS, OFFSETS)
def test_a_name_says_what_the_file_holds(topic: str, partition: int, one: int, two: int) -> None:
    name = DataName(topic, partition, min(one, two), max(one, two))
    assert data_name(name.path) == name
    assert manifest_name(name.path) is None
    assert not is_temporary(name.path)


@given(st.integers(1, 100_000), OFFSETS)
def test_a_manifest_has_a_place_in_its_run(run: int, number: int) -> None:
    name = ManifestName(run, number)
    assert manifest_name(name.path) == name
    assert data_name(name.path) is None


@pytest.mark.parametrize(
    "path",
    [
        "topic=t/partition=0/00000000000000000009-00000000000000000003.parquet",
        "topic=t/partition=00/00000000000000000000-00000000000000000003.parquet",
        "topic=t/partition=0/0-3.parquet",
        "topic=t/partition=0/00000000000000000000-00000000000000000003.parquet.bak",
        "topic=a/b/partition=0/00000000000000000000-00000000000000000003.parquet",
        "x/topic=t/partition=0/00000000000000000000-00000000000000000003.parquet",
        temporary_path("topic=t/partition=0", "m"),
    ],
)
def test_other_files_are_no_data(path: str) -> None:
    assert data_name(path) is None


def test_what_is_unfinished_is_told_by_its_name() -> None:
    assert is_temporary(temporary_path("topic=t/partition=0", "m"))
    assert is_temporary(temporary_path("", "m"))


def test_a_batch_goes_on_where_the_last_one_ended() -> None:
    first = manifests.next_manifest([entry(5, 9), entry(0, 3, partition=1)], EMPTY)
    assert first.ends == {("t", 0): 10, ("t", 1): 4}
    second = manifests.next_manifest([entry(12, 14), entry(10, 11)], first)
    assert [file.name.first for file in second.files] == [10, 12]
    assert second.ends == {("t", 0): 15, ("t", 1): 4}


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ([entry(11, 14)], "LEADLINE_ARCHIVE_GAP"),
        ([entry(10, 11), entry(13, 14)], "LEADLINE_ARCHIVE_GAP"),
        ([entry(9, 14)], "LEADLINE_ARCHIVE_CONFLICT"),
        ([entry(10, 12), entry(12, 14)], "LEADLINE_ARCHIVE_CONFLICT"),
        ([entry(10, 12, topic_id="cd" * 16)], "LEADLINE_ARCHIVE_CONFLICT"),
        ([entry(0, 2, partition=7, topic_id="cd" * 16)], "LEADLINE_ARCHIVE_CONFLICT"),
    ],
)
def test_a_batch_that_does_not_go_on_is_refused(files: list[ManifestEntry], code: str) -> None:
    before = manifests.next_manifest([entry(0, 9)], EMPTY)
    with pytest.raises(LeadlineSparkError) as refused:
        manifests.next_manifest(files, before)
    assert refused.value.code == code


def test_a_batch_that_ran_again_keeps_the_files_of_the_first_time() -> None:
    before = manifests.next_manifest([entry(0, 4), entry(5, 9)], EMPTY)
    assert manifests.repeated_manifest([entry(5, 9), entry(0, 4)], before) == before
    assert manifests.repeated_manifest([entry(0, 9)], before) == before
    renewed = manifests.repeated_manifest([entry(0, 4, bytes=7), entry(5, 9)], before)
    assert [file.bytes for file in renewed.files] == [7, 1]


@pytest.mark.parametrize("files", [[], [entry(0, 8)], [entry(0, 10)], [entry(0, 9, partition=1)]])
def test_another_batch_of_that_number_is_refused(files: list[ManifestEntry]) -> None:
    before = manifests.next_manifest([entry(0, 4), entry(5, 9)], EMPTY)
    with pytest.raises(LeadlineSparkError) as refused:
        manifests.repeated_manifest(files, before)
    assert refused.value.code == "LEADLINE_ARCHIVE_CONFLICT"


CUTS = st.sets(st.integers(1, 199), max_size=30)


@given(CUTS, CUTS, st.randoms())
def test_compaction_changes_no_range(cuts: set[int], kept: set[int], random: Random) -> None:
    edges = [0, *sorted(cuts), 200]
    batches = []
    before = EMPTY
    for first, end in pairwise(edges):
        before = manifests.next_manifest([entry(first, end - 1)], before)
        batches.append(before)
    merged_edges = [0, *sorted(cuts & kept), 200]
    merged = tuple(entry(first, end - 1) for first, end in pairwise(merged_edges))
    new = {file.path for file in merged}
    replaced = tuple(file.path for one in batches for file in one.files if file.path not in new)
    everything = [*batches, Manifest(merged, before.ends, before.topic_ids, replaced)]
    random.shuffle(everything)
    assert manifests.listed(everything) == list(merged)
    assert manifests.spans(manifests.listed(everything)) == {("t", 0): [(0, 200)]}
    assert manifests.ends_of(manifests.listed(everything)) == {("t", 0): 200}


def test_a_manifest_is_read_as_it_was_written() -> None:
    first = manifests.next_manifest([entry(5, 9), entry(0, 3, partition=11)], EMPTY)
    compacted = Manifest((entry(0, 9),), first.ends, first.topic_ids, ("a", "b"))
    for one in (EMPTY, first, compacted):
        assert manifests.decode(manifests.encode(one), "here") == one
        assert manifests.encode(one) == manifests.encode(one)


def _spoiled() -> list[bytes]:
    document = json.loads(manifests.encode(manifests.next_manifest([entry(0, 9)], EMPTY)))
    row = document["files"][0]
    rows = [{**row, "path": "elsewhere"}, {**row, "rows": "9"}, {**row, "more": 1}, {}, "x"]
    documents = [{**document, "files": [one]} for one in rows]
    documents += [{**document, "version": 2}, {**document, "ends": {"t": 1}}, {}]
    documents.append({**document, "ends": {"t": {"0": float("inf")}}})
    return [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        *(json.dumps(one).encode() for one in documents),
    ]


@pytest.mark.parametrize("content", _spoiled())
def test_a_spoiled_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(LeadlineSparkError) as refused:
        manifests.decode(content, "_manifests/0001/x.json")
    assert refused.value.code == "LEADLINE_ARCHIVE_DAMAGED"
