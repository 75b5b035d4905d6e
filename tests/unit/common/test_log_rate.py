"""Equal log lines: the first at once, then one for each interval, with how many were left out."""

from __future__ import annotations

from leadline_common.log_rate import LogRate


def test_the_first_line_is_logged_and_then_one_for_each_interval() -> None:
    rate = LogRate(every_ms=1_000)
    lines = [rate.admit("a", now_ms) for now_ms in (0, 200, 400, 999, 1_000, 1_001, 2_500)]
    assert lines == [0, None, None, None, 3, None, 1]


def test_a_kind_of_its_own_is_logged_at_once() -> None:
    rate = LogRate(every_ms=1_000)
    assert [rate.admit(kind, 5) for kind in ("a", "a", "b")] == [0, None, 0]
