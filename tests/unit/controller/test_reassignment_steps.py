"""The steps of KIP-435: its example and worked traces, exactly."""

from __future__ import annotations

import pytest

from leadline_common.reassignments import ReassignmentAlgorithm
from leadline_controller.domain.reassignment.steps import calculate_reassignment_step

OLD, NEW = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)

TRACES = [
    pytest.param(
        OLD,
        NEW,
        2,
        1,
        None,
        ["5,0,1,2,3,4", "5,6,2,3,4", "5,6,7,8,4", "5,6,7,8,9"],
        id="printed-example",
    ),
    pytest.param(
        OLD,
        NEW,
        1,
        1,
        None,
        ["5,0,1,2,3,4", "5,1,2,3,4", "5,6,2,3,4", "5,6,7,3,4", "5,6,7,8,4", "5,6,7,8,9"],
        id="one-at-a-time",
    ),
    pytest.param(
        OLD, NEW, 3, 1, None, ["5,0,1,2,3,4", "5,6,7,3,4", "5,6,7,8,9"], id="three-at-a-time"
    ),
    pytest.param(OLD, NEW, None, 1, None, ["5,6,7,8,9"], id="no-limit"),
    pytest.param(
        (0, 1, 2), (3, 4, 5), 2, 1, None, ["3,0,1,2", "3,4,2", "3,4,5"], id="three-to-three"
    ),
    pytest.param((0, 1, 2), (0, 3, 4), 1, 1, None, ["0,3,2", "0,3,4"], id="leader-stays"),
    pytest.param((0,), (1, 2, 3), 1, 3, None, ["1,2,0", "1,2,3"], id="min-insync-exceeds-limit"),
    pytest.param(
        (0, 1), (2, 3, 4, 5), 2, 1, None, ["2,0,1", "2,3,4", "2,3,4,5"], id="more-replicas"
    ),
    pytest.param(
        OLD, NEW, 1, 1, {0, 2, 3, 4, 6, 7}, ["6,0,2,3,4", "6,7,2,3,4"], id="offline-targets"
    ),
    pytest.param((0, 1, 2), (2, 0, 1), 1, 2, None, ["2,0,1"], id="other-order-only"),
    pytest.param((0, 1, 2), (0, 1, 2), 1, 2, None, [], id="nothing-to-do"),
]


def walk(
    start: tuple[int, ...],
    target: tuple[int, ...],
    limit: int | None,
    min_insync: int,
    live: set[int],
    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL,
) -> tuple[list[str], list[int], tuple[int, ...]]:
    """Take steps to the target, or until no step is possible; live replicas are in sync."""
    current, leader = start, start[0]
    assignments: list[str] = []
    leaders: list[int] = []
    while current != target:
        step = calculate_reassignment_step(
            current,
            target,
            replica_movements=limit,
            min_insync_replicas=min_insync,
            live=live,
            isr=live.intersection(current),
            leader=leader,
            algorithm=algorithm,
        )
        if step.is_idle:
            return assignments, leaders, step.waiting_for
        current, leader = step.assignment, step.leader
        assignments.append(",".join(map(str, current)))
        leaders.append(leader)
    return assignments, leaders, ()


@pytest.mark.parametrize(("start", "target", "limit", "min_insync", "live", "expected"), TRACES)
def test_traces_match_exactly(
    start: tuple[int, ...],
    target: tuple[int, ...],
    limit: int | None,
    min_insync: int,
    live: set[int] | None,
    expected: list[str],
) -> None:
    online = live or {*start, *target}
    assignments, leaders, waiting_for = walk(start, target, limit, min_insync, online)
    assert assignments == expected
    assert waiting_for == tuple(b for b in target if b not in online)
    if target[0] in online and assignments:
        assert set(leaders) == {target[0]}


def test_the_first_step_adds_only_the_future_leader_and_drops_nothing() -> None:
    step = calculate_reassignment_step(
        OLD, NEW, replica_movements=2, min_insync_replicas=1, live={*OLD, *NEW}, isr=OLD, leader=0
    )
    assert (step.added, step.dropped, step.leader, step.leader_step) == ((5,), (), 5, True)


def test_legacy_takes_one_step_and_adds_even_what_is_down() -> None:
    step = calculate_reassignment_step(
        OLD,
        NEW,
        replica_movements=1,
        min_insync_replicas=1,
        live={*OLD, 5, 6, 7, 8},
        isr=OLD,
        leader=0,
        algorithm=ReassignmentAlgorithm.LEGACY,
    )
    assert (step.assignment, step.added, step.dropped) == (NEW, NEW, OLD)
    assert step.waiting_for == (9,)


def test_dead_excess_replicas_are_dropped_first() -> None:
    step = calculate_reassignment_step(
        (0, 1, 2), (0, 1, 3), replica_movements=1, min_insync_replicas=2, live={0, 1, 3}, isr=(0, 1)
    )
    assert step.dropped == (2,)
    step = calculate_reassignment_step(
        (0, 1, 2, 3),
        (0, 4, 5, 6),
        replica_movements=1,
        min_insync_replicas=2,
        live={0, 1, 2, 4, 5, 6},
        isr=(0, 1, 2),
    )
    assert step.dropped == (3,)


def test_a_drop_below_min_insync_replicas_is_withdrawn() -> None:
    """Broker 4 is assigned but lags: neither 0 nor 1 may be dropped before it is in sync."""
    step = calculate_reassignment_step(
        (4, 0, 1), (4, 5), replica_movements=1, min_insync_replicas=2, live={0, 1, 4, 5}, isr=(0, 1)
    )
    assert step.is_idle
    assert step.waiting_for == (4,)
