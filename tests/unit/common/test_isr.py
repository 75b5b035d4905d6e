"""The ISR floor and the eligible replicas, which leader and controller compute alike."""

from __future__ import annotations

import pytest

from leadline_common.isr import eligible_after, isr_floor


@pytest.mark.parametrize(
    ("min_insync", "assigned", "adding", "expected"),
    [
        (2, (1, 2, 3), (), 2),
        (2, (1,), (), 1),
        (2, (1, 2), (), 2),
        (1, (1, 2, 3), (), 1),
        (9, (1, 2, 3), (), 3),
        (2, (2, 1), (2,), 1),
        (3, (3, 1, 2), (3,), 2),
        (2, (1, 2, 3), (9,), 2),
        (2, (1, 2), (1, 2), 2),
    ],
)
def test_defect_07_the_floor_leaves_out_the_replicas_being_added(
    min_insync: int, assigned: tuple[int, ...], adding: tuple[int, ...], expected: int
) -> None:
    assert isr_floor(min_insync, assigned, adding) == expected


@pytest.mark.parametrize(
    ("isr", "eligible", "new_isr", "expected"),
    [
        pytest.param((1, 2, 3), (), (1, 2), (), id="still-at-the-floor"),
        pytest.param((1, 2), (), (1,), (2,), id="falls-below"),
        pytest.param((1, 2, 3), (), (1,), (2, 3), id="two-at-once"),
        pytest.param((1,), (3,), (1,), (3,), id="stays-below"),
        pytest.param((1, 2), (3,), (1,), (2, 3), id="falls-below-before-they-were-dropped"),
        pytest.param((1,), (3,), (1, 3), (), id="back-at-the-floor"),
        pytest.param((1, 7), (8,), (1,), (), id="not-assigned-any-more"),
    ],
)
def test_who_left_below_the_floor_is_eligible(
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    new_isr: tuple[int, ...],
    expected: tuple[int, ...],
) -> None:
    assert eligible_after((1, 2, 3), isr, eligible, new_isr, 2) == expected
