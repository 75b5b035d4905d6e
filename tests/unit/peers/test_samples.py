"""What is said about samples."""

from __future__ import annotations

import pytest

from peers.report.samples import percentile, ratio, shown
from tests.unit.peers.runs import samples


def test_a_ratio_is_the_median_over_the_rounds_not_that_of_the_medians() -> None:
    ours, peer = samples("leadline", 10, 20, 90), samples("kafka", 20, 10, 90)

    assert ratio(ours, peer) == 1.0
    assert ratio(samples("leadline", 1, 2, 3), samples("kafka", 2, 8, 6)) == 0.5


def test_rounds_that_cannot_be_paired_are_compared_by_their_medians() -> None:
    assert ratio(samples("leadline", 4, 6), samples("kafka", 10)) == 0.5


def test_there_is_no_ratio_to_nothing() -> None:
    assert ratio(samples("leadline", 4), samples("kafka", 0)) is None
    assert ratio(samples("leadline", 4, 4), samples("kafka", 0)) is None


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (1.5, "1.5"), (45.678, "45.7"), (12345.6, "12,346"), (100, "100")],
)
def test_figures_are_shown_with_three_digits(value: float, text: str) -> None:
    assert shown(value) == text
