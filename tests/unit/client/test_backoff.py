"""Pauses double with each failure, stop at the longest, and are jittered over their upper half."""

from __future__ import annotations

import pytest

from leadline_client.backoff import Backoff, backoff_pause


@pytest.mark.parametrize(
    ("failures", "pause"), [(1, 20), (2, 40), (3, 80), (6, 640), (7, 1_000), (10_000, 1_000)]
)
def test_pauses_double_up_to_the_longest(failures: int, pause: float) -> None:
    assert backoff_pause(failures, first=20, longest=1_000, random=1.0) == pause


def test_jitter_takes_off_up_to_one_half() -> None:
    assert backoff_pause(2, first=20, longest=1_000, random=0.0) == 20
    assert backoff_pause(2, first=20, longest=1_000, random=0.5) == 30


def test_a_loop_starts_again_from_the_first_pause_after_a_success() -> None:
    backoff = Backoff(lambda: 0.0, first_ms=100, longest_ms=1_000)
    assert [backoff.next_ms() for _ in range(5)] == [50, 100, 200, 400, 500]
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next_ms() == 50
