"""How far moving replicas are, by heartbeats: what is left, how fast, how long still."""

from __future__ import annotations

from leadline_client.wire import TopicPartition
from leadline_common.rpc import MovingRow
from leadline_controller.runtime.reassignment.progress import (
    TASKS_KEPT,
    WINDOW_MS,
    BytesLeft,
    ReassignmentProgress,
)
from tests.unit.controller.images import NAME, TOPIC


def row(left: int, *, partition: int = 0, replica: int = 2, total: int = 1000) -> MovingRow:
    return MovingRow(TOPIC, partition, replica, left, total)


def progress() -> ReassignmentProgress:
    return ReassignmentProgress(lambda name: "7" if name.partition < 5 else "8")


def test_what_is_left_is_what_leaders_said_last() -> None:
    known = progress()
    known.on_heartbeat(1, [row(900), row(500, partition=6)], 0)
    known.on_heartbeat(3, [row(100, partition=1)], 0)
    assert known.bytes_left("7") == BytesLeft(1000, 2000)
    assert known.bytes_left() == BytesLeft(1500, 3000)
    known.on_heartbeat(1, [row(300)], 500)
    assert known.bytes_left() == BytesLeft(400, 2000)
    assert known.by_partition() == {NAME: 300, TopicPartition(TOPIC, 1): 100}


def test_the_rate_counts_what_was_copied_lately() -> None:
    known = progress()
    known.on_heartbeat(1, [row(1000)], 0)
    assert known.rate("7", 0) == 0
    known.on_heartbeat(1, [row(600)], 1000)
    known.on_heartbeat(1, [row(200)], 2000)
    assert known.rate("7", 3000) == 400
    assert known.rate("8", 3000) == 0
    assert known.rate("7", 2000 + WINDOW_MS + 1) == 0


def test_a_replica_that_has_caught_up_has_copied_the_rest() -> None:
    known = progress()
    known.on_heartbeat(1, [row(1000)], 0)
    known.on_heartbeat(1, [], 1000)
    assert known.bytes_left() == BytesLeft(0, 0)
    assert known.rate("7", 2000) == 1000


def test_a_task_is_as_large_as_the_replicas_that_were_heard_of() -> None:
    known = progress()
    known.on_heartbeat(1, [row(900), row(400, partition=1, total=500)], 0)
    known.on_heartbeat(1, [row(100, total=1200), row(70, partition=6, total=70)], 1000)
    known.on_heartbeat(1, [], 2000)
    assert known.size_of("7") == 1700
    assert known.size_of("9") == 0


def test_the_estimate_takes_partitions_that_wait_to_be_as_large() -> None:
    known = progress()
    assert known.eta_ms("7", 3, 0) is None
    known.on_heartbeat(1, [row(1000)], 0)
    known.on_heartbeat(1, [row(500)], 1000)
    assert known.eta_ms("7", 0, 2000) == 1000
    assert known.eta_ms("7", 3, 2000) == 7000


def test_what_a_leader_said_before_it_died_is_forgotten() -> None:
    known = progress()
    known.on_heartbeat(1, [row(900)], 0)
    known.on_heartbeat(3, [row(700)], 100)
    known.on_heartbeat(1, [], 200)
    assert known.bytes_left("7") == BytesLeft(700, 1000)
    known.on_heartbeat(2, [], WINDOW_MS + 101)
    assert known.bytes_left("7") == BytesLeft(0, 0)


def test_of_tasks_that_were_over_long_ago_nothing_is_kept() -> None:
    """A term may last for months, and healing and drains make tasks all the time."""
    known = ReassignmentProgress(lambda name: str(name.partition))
    known.on_heartbeat(1, [row(900, partition=7)], 0)
    for number in range(1000, 1000 + TASKS_KEPT - 1):
        known.on_heartbeat(2, [row(900, partition=number)], 0)
    known.on_heartbeat(1, [row(400, partition=7)], 1)
    assert known.eta_ms("7", 0, 1) is not None
    for number in range(2000, 2000 + TASKS_KEPT):
        known.on_heartbeat(2, [row(900, partition=number)], 2)
    assert known.eta_ms("7", 0, 2) is None
