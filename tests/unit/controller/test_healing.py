"""Decisions of self-healing, without IO."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_controller.domain.healing import brokers_down, is_over_budget
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
