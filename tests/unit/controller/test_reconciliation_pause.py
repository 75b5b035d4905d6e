"""How long the controller waits between two comparisons with ZooKeeper (rule R8)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline_controller.runtime.reconciliation import MAX_INTERVALS, MAX_SHARE, pause_ms

INTERVALS = st.integers(min_value=100, max_value=3_600_000)


def test_a_fast_reconciliation_is_repeated_after_the_interval() -> None:
    assert pause_ms(5_000, 0) == pause_ms(5_000, 250) == 5_000


def test_a_longer_one_takes_a_small_share_of_the_time() -> None:
    assert pause_ms(5_000, 1_000) == MAX_SHARE * 1_000


@given(INTERVALS, st.integers(min_value=0, max_value=10_000_000))
def test_a_slow_zookeeper_does_not_postpone_the_repair_for_long(interval: int, last: int) -> None:
    """Seed 20475 of the runtime simulation: a change that was missed stayed so."""
    assert interval <= pause_ms(interval, last) <= MAX_INTERVALS * interval
