"""Offsets as users and checkpoints write them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.wire import TopicPartition
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import (
    OffsetAndEpoch,
    SourceOffset,
    check_partitions,
    parse_assign,
    parse_partition_offsets,
)
from leadline_spark.read.progress import offsets_behind_latest

PLACES = st.builds(TopicPartition, st.text("abc.-_", min_size=1, max_size=4), st.integers(0, 99))
POSITIONS = st.builds(OffsetAndEpoch, st.integers(0, 2**63 - 1), st.integers(-1, 99))


@given(st.dictionaries(PLACES, POSITIONS))
def test_a_checkpoint_gives_back_what_was_put_into_it(
    positions: dict[TopicPartition, OffsetAndEpoch],
) -> None:
    offset = SourceOffset(
        positions,
        {topic_partition.topic: "id-" + topic_partition.topic for topic_partition in positions},
    )
    text = json.dumps(offset.document())

    assert SourceOffset.of(json.loads(text)) == offset
    assert SourceOffset.of_checkpoint(json.loads(text)) == offset
    # Spark compares text: the order in which partitions were heard of must not show.
    turned = SourceOffset(
        dict(reversed(positions.items())), dict(reversed(list(offset.ids.items())))
    )
    assert json.dumps(turned.document()) == text


def test_the_shape_is_that_of_kafka_s_source() -> None:
    offset = SourceOffset(
        {
            TopicPartition("orders", 1): OffsetAndEpoch(9, 4),
            TopicPartition("orders", 0): OffsetAndEpoch(12),
        },
        {"orders": "b1946ac9"},
    )

    assert offset.document() == {
        "orders": {"0": 12, "1": 9},
        "@epochs": {"orders": {"1": 4}},
        "@ids": {"orders": "b1946ac9"},
    }
    assert SourceOffset.of({"orders": {"0": 12}}).positions == {
        TopicPartition("orders", 0): OffsetAndEpoch(12)
    }


@pytest.mark.parametrize(
    "document",
    [
        5,
        [],
        {"t": 5},
        {"t": {"x": 1}},
        {"t": {"0": "1"}},
        {"t": {"0": True}},
        {"t": {"-1": 1}},
        {"t": [1]},
        {"t": {"0": 5, "00": 7}},  # Which of them?
        {"t": {"1_0": 5}},
        {"t": {"\u0663": 5}},
    ],
)
def test_offsets_of_another_shape_are_refused(document: object) -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OFFSETS_INVALID"):
        parse_partition_offsets("startingOffsets", document)


@pytest.mark.parametrize(
    "document",
    [
        *(None, 5, [], "x", {"t": 5}, {"audit": 5121}),
        {"t": {"0": -7}, "@ids": {"t": "id"}},
        {"t": {"0": 1}, "@ids": None},
        {"t": {"0": 1}, "@ids": 5},
        {"t": {"0": 1}, "@ids": []},
        {"t": {"0": 1}, "@ids": {"t": 5}},
        {"t": {"0": 1}, "@ids": {}},
        {"t": {"0": 1}, "@ids": {"t": "id"}, "@epochs": []},
        # What Kafka's source writes: its offsets mean nothing here.
        *({"t": {"0": 12}}, {"t": {"0": 12}, "u": {"0": 1}, "@ids": {"t": "id"}}, {}),
    ],
)
def test_the_checkpoint_of_another_source_or_a_damaged_one_is_refused(document: object) -> None:
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_OFFSETS_INVALID.*Start .* a new one"):
        SourceOffset.of_checkpoint(document)


def test_the_checkpoint_of_a_pattern_that_matches_nothing_yet_is_valid() -> None:
    nothing = SourceOffset({})

    assert SourceOffset.of_checkpoint(nothing.document()) == nothing


@pytest.mark.parametrize(
    "document",
    [
        *(5, {"t": 5}, {"t": ["x"]}, ["t"], {"t": [1.9]}, {"t": "12"}, {"t": [True]}, {"t": [-1]}),
        *({"t": ["1"]}, {"t": [[1]]}, {"t": {"0": 1}}, {"t": [None]}),
    ],
)
def test_an_assignment_of_another_shape_is_refused(document: object) -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OPTION_INVALID"):
        parse_assign(document)


def test_offsets_have_to_name_what_is_read() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)

    check_partitions("startingOffsets", [one, zero], [zero, one])
    with pytest.raises(LeadlineSparkError, match="Missing: t-1"):
        check_partitions("startingOffsets", [zero], [zero, one])
    with pytest.raises(LeadlineSparkError, match="Not read: t-1"):
        check_partitions("startingOffsets", [zero, one], [zero])


def test_lag_is_reckoned_from_a_progress() -> None:
    progress = {
        "sources": [
            {
                "endOffset": {"t": {"0": 5, "1": 5, "2": 9}, "@ids": {"t": "id"}},
                "latestOffset": {"t": {"0": 5, "1": 11, "2": 8, "3": 4}, "@ids": {"t": "id"}},
            }
        ]
    }
    lag = {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 6,
        "avgOffsetsBehindLatest": 2.0,
    }

    assert offsets_behind_latest(progress) == lag
    assert offsets_behind_latest(json.dumps(progress)) == lag
    assert offsets_behind_latest({"sources": [{"endOffset": None, "latestOffset": None}]}) is None
    assert offsets_behind_latest(None) is None
