"""A clock that is wrong, or is set, makes nothing too old by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline_common.cluster_time import ClusterTime
from tests.support.manual_clock import ManualClock

DAY = 86_400_000
OFF = st.integers(-1_000 * DAY, 1_000 * DAY)


def test_nothing_is_too_old_before_a_time_was_heard() -> None:
    clock = ManualClock()
    time = ClusterTime(clock)
    assert time.earliest_ms() == 0
    assert time.latest_ms() == clock.wall_ms()
    assert time.ahead_ms() == 0


@given(off=OFF, passed=st.integers(0, 1_000 * DAY))
def test_the_time_lies_between_this_clock_and_what_was_heard(off: int, passed: int) -> None:
    clock = ManualClock()
    heard = clock.wall_ms()
    clock.step_wall(off)
    time = ClusterTime(clock, heard)
    clock.advance(passed)
    assert time.earliest_ms() == heard + passed + min(off, 0)
    assert time.latest_ms() == heard + passed + max(off, 0)
    assert time.ahead_ms() == off


def test_what_is_heard_later_counts() -> None:
    clock = ManualClock()
    right = clock.wall_ms()
    time = ClusterTime(clock, right - DAY)
    assert time.earliest_ms() == right - DAY
    time.hear(right)
    assert time.earliest_ms() == right
