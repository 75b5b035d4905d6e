"""When in-sync replicas leave and join, as functions of what the leader knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.domain.isr import (
    UNKNOWN_END,
    FollowerProgress,
    lagging_members,
    may_join,
)

LAG = 100


def lagging(follower: FollowerProgress, *, end: int, now: int) -> bool:
    return lagging_members(
        (2,), {2: follower}, log_end_offset=end, now=now, lag_time_max_ms=LAG
    ) == (2,)


@pytest.mark.parametrize(
    ("end", "caught_up", "now", "expected"),
    [
        (10, 0, 9_999, False),
        (11, 0, 9_999, False),
        (9, 0, LAG, False),
        (9, 0, LAG + 1, True),
        (9, 50, LAG + 50, False),
        (9, 50, LAG + 51, True),
        (UNKNOWN_END, 0, LAG, False),
        (UNKNOWN_END, 0, LAG + 1, True),
    ],
)
def test_lag_is_time_since_last_caught_up(
    end: int, caught_up: int, now: int, expected: bool
) -> None:
    follower = FollowerProgress(end=end, last_caught_up_ms=caught_up)

    assert lagging(follower, end=10, now=now) is expected


def test_members_without_progress_do_not_lag() -> None:
    """The leader itself has none."""
    assert lagging_members((1, 9), {}, log_end_offset=5, now=9_999, lag_time_max_ms=1) == ()


def test_the_order_of_the_isr_is_kept() -> None:
    behind = {b: FollowerProgress(end=0) for b in (3, 2, 5)}

    assert lagging_members((5, 2, 3), behind, log_end_offset=1, now=999, lag_time_max_ms=1) == (
        5,
        2,
        3,
    )


def test_a_fetch_at_the_end_catches_up() -> None:
    follower = FollowerProgress()

    follower.on_fetch(10, 10, 70)

    assert (follower.end, follower.last_caught_up_ms, follower.last_fetch_ms) == (10, 70, 70)


def test_reaching_the_end_of_the_last_fetch_was_caught_up_then() -> None:
    """A steady stream of records keeps no follower out that follows at its speed."""
    follower = FollowerProgress()
    follower.on_fetch(5, 10, 70)

    follower.on_fetch(10, 20, 90)

    assert follower.last_caught_up_ms == 70


def test_falling_further_behind_is_not_catching_up() -> None:
    follower = FollowerProgress()
    follower.on_fetch(5, 10, 70)

    follower.on_fetch(9, 20, 90)

    assert follower.last_caught_up_ms == 0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=30))
def test_caught_up_time_never_falls_nor_passes_now(fetches: list[tuple[int, int]]) -> None:
    follower = FollowerProgress()
    now = end = caught_up = 0
    for lag, passed in fetches:
        now += passed
        end += passed
        follower.on_fetch(max(0, end - lag), end, now)
        assert caught_up <= follower.last_caught_up_ms <= now
        caught_up = follower.last_caught_up_ms


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 3))
def test_a_follower_one_fetch_behind_never_lags(steps: list[int], burst: int) -> None:
    follower = FollowerProgress()
    end = now = 0
    for step in steps:
        held, end, now = end, end + step + burst, now + 10
        follower.on_fetch(held, end, now)
        assert not lagging(follower, end=end, now=now + LAG - 20)


@pytest.mark.parametrize(
    ("end", "high_watermark", "epoch_start", "expected"),
    [
        (UNKNOWN_END, 0, 0, False),
        (0, 0, 0, True),
        (4, 5, 0, False),
        (5, 5, 0, True),
        (5, 5, 6, False),
        (6, 5, 6, True),
        (9, 5, 6, True),
    ],
)
def test_a_joiner_holds_all_that_may_be_committed(
    end: int, high_watermark: int, epoch_start: int, expected: bool
) -> None:
    joins = may_join(
        FollowerProgress(end=end), high_watermark=high_watermark, epoch_start=epoch_start
    )

    assert joins is expected
