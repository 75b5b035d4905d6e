"""Both systems' metadata, read into the same view."""

from __future__ import annotations

import json
import struct

import pytest

from peers.kafka.metadata import decode
from peers.systems.leadline import view_of
from peers.systems.system import Partition, View

ROWS = (Partition("t", 0, 2, (2, 3)), Partition("t", 1, -1, (1,)))
EXPECTED = View(frozenset({1, 2}), ROWS)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def numbers(*values: int) -> bytes:
    return struct.pack(f">i{len(values)}i", len(values), *values)


def topic(name: str, rows: tuple[Partition, ...], *, internal: bool = False) -> bytes:
    encoded = struct.pack(">h", 0) + string(name) + struct.pack(">?i", internal, len(rows))
    for row in rows:
        encoded += struct.pack(">hii", 0, row.number, row.leader)
        encoded += numbers(1, 2, 3) + numbers(*row.isr)
    return encoded


def test_kafka_s_answer_is_decoded_without_internal_topics() -> None:
    brokers = struct.pack(">i", 2)
    for number in (1, 2):
        brokers += struct.pack(">i", number) + string("h") + struct.pack(">ih", 9092, -1)
    topics = topic("__consumer_offsets", ROWS[:1], internal=True) + topic("t", ROWS)

    assert decode(brokers + struct.pack(">ii", 1, 2) + topics) == EXPECTED


def test_leadline_s_document_is_decoded() -> None:
    rows = [[0, 2, 5, [2, 3], [1, 2, 3]], [1, -1, 6, [1], [1, 2, 3]]]
    document = {"brokers": [{"id": 1}, {"id": 2}], "topics": {"t": {"partitions": rows}}}

    assert view_of(json.dumps(document).encode()) == EXPECTED


@pytest.mark.parametrize(
    ("row", "healed"),
    [
        (Partition("t", 0, 2, (2, 3)), True),
        (Partition("t", 0, 1, (2, 3)), False),
        (Partition("t", 0, 2, (2, 1)), False),
        (Partition("t", 0, -1, (2,)), False),
    ],
    ids=["healed", "led", "in-sync", "leaderless"],
)
def test_metadata_is_healed_once_nothing_depends_on_the_dead_broker(
    row: Partition, healed: bool
) -> None:
    assert View(frozenset({2, 3}), (Partition("t", 1, 3, (3,)), row)).is_healed_of(1) is healed


@pytest.mark.parametrize(
    ("brokers", "row", "whole"),
    [
        ({1, 2, 3}, Partition("t", 0, 2, (2, 3, 1)), True),
        ({1, 2, 3}, Partition("t", 0, 2, (2, 3)), False),
        ({1, 2}, Partition("t", 0, 2, (2, 3, 1)), False),
        ({1, 2, 3}, Partition("t", 0, -1, (2, 3, 1)), False),
    ],
)
def test_a_cluster_is_whole_with_every_broker_and_replica(
    brokers: set[int], row: Partition, whole: bool
) -> None:
    assert View(frozenset(brokers), (row,)).is_whole is whole
