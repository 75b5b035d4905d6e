"""Decisions of self-healing, without IO."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_controller.domain.healing import (
    FailureDiff,
    brokers_down,
    diff_failures,
    is_over_budget,
    lost_brokers,
)
from tests.unit.controller.images import cluster

ASSIGNMENT = {0: (1, 2), 1: (2, 3), 2: (3, 4), 3: (4, 1)}


def test_defect_11_every_dead_broker_with_replicas_counts_against_the_budget() -> None:
    """Nothing but the image matters: no record is kept once all chunks are queued."""
    image = cluster([3, 4], ASSIGNMENT)
    assert brokers_down(image, recorded=()) == {1, 2}
    assert is_over_budget(image, recorded=(), percent=34)
    assert not is_over_budget(image, recorded=(), percent=50)


@pytest.mark.parametrize("recorded", [(), (2,)])
def test_a_dead_broker_without_replicas_counts_only_until_it_was_dealt_with(
    recorded: tuple[int, ...],
) -> None:
    image = cluster([1, 3, 4], {0: (1, 3)})
    assert brokers_down(image, recorded) == {*recorded}


@given(
    live=st.sets(st.integers(1, 8), min_size=1),
    recorded=st.sets(st.integers(1, 8)),
    percent=st.integers(0, 100),
)
def test_what_is_recorded_only_ever_adds_to_who_is_down(
    live: set[int], recorded: set[int], percent: int
) -> None:
    image = cluster(live, {0: (1, 2, 3), 1: (4, 5, 6)})
    down = brokers_down(image, recorded)
    assert down == ({1, 2, 3, 4, 5, 6} | recorded) - live
    assert is_over_budget(image, recorded, percent) == (
        100 * len(down) > percent * (len(down) + len(live))
    )


@pytest.mark.parametrize(
    ("live", "returned", "expected"),
    [
        ([1, 2, 3], (), FailureDiff(failed=(4,), returned=())),
        ([1, 2, 3, 4], (4,), FailureDiff(failed=(), returned=())),
        ([1, 2, 3], (4,), FailureDiff(failed=(4,), returned=())),
        ([1, 2, 3, 5, 6], (5, 6), FailureDiff(failed=(4,), returned=(5, 6))),
        ([1, 2, 3], (5, 6), FailureDiff(failed=(4, 5, 6), returned=(5, 6))),
    ],
)
def test_a_broker_that_returned_and_is_gone_has_failed_again(
    live: list[int], returned: tuple[int, ...], expected: FailureDiff
) -> None:
    """Broker 5 is recorded as failed and 6 as dead; 4 is not recorded."""
    image = cluster(live, {0: (1, 2), 1: (2, 3)})
    seen = {*live, *returned, 4}
    diff = diff_failures(image, {5}, {5, 6}, seen, returned, covered={})
    assert diff == expected


def test_a_dead_broker_without_replicas_takes_none_over() -> None:
    """It has no chunk, and is not failed any more, since nothing of it is to be healed."""
    image = cluster([1, 3], ASSIGNMENT)
    assert lost_brokers(image, due=frozenset(), recorded={5}, healed=set()) == {5}
    assert lost_brokers(image, due={2}, recorded={1}, healed={3, 4}) == {2, 4}
