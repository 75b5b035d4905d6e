"""The functions of PromQL that the alert rules and the dashboard use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from tests.support.promql.scrapes import Labels, Point


def _extrapolated(
    points: Sequence[Point], at_s: float, range_s: float, *, counter: bool
) -> float | None:
    """Return the increase within the range as Prometheus computes it, None for fewer than 2 points.

    The increase between the first and the last point is extended to the ends of the range, but only
    by half an interval where the series seems to begin or end within it, and for a counter not to
    before it was 0.
    """
    if len(points) < 2:
        return None
    first, last = points[0], points[-1]
    grown = last.value - first.value
    if counter:
        for before, after in pairwise(points):
            grown += before.value if after.value < before.value else 0.0
    sampled_s = last.at_s - first.at_s
    average_s = sampled_s / (len(points) - 1)
    to_start_s, to_end_s = first.at_s - (at_s - range_s), at_s - last.at_s
    if counter and grown > 0 and first.value >= 0:
        to_start_s = min(to_start_s, sampled_s * first.value / grown)
    extended_s = sampled_s
    for gap_s in (to_start_s, to_end_s):
        extended_s += gap_s if gap_s < average_s * 1.1 else average_s / 2
    return grown * extended_s / sampled_s


def _increase(points: Sequence[Point], at_s: float, range_s: float) -> float | None:
    return _extrapolated(points, at_s, range_s, counter=True)


def _rate(points: Sequence[Point], at_s: float, range_s: float) -> float | None:
    grown = _increase(points, at_s, range_s)
    return None if grown is None else grown / range_s


def _delta(points: Sequence[Point], at_s: float, range_s: float) -> float | None:
    return _extrapolated(points, at_s, range_s, counter=False)


FUNCTIONS: Final[Mapping[str, Callable[[Sequence[Point], float, float], float | None]]] = {
    "increase": _increase,
    "rate": _rate,
    "delta": _delta,
}
"""Functions of a range: points, the time of evaluation, and the range in seconds."""


def histogram_quantile(quantile: float, buckets: Mapping[Labels, float]) -> dict[Labels, float]:
    """Return the quantile of each histogram, NaN for an empty one."""
    grouped: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in buckets.items():
        bound = dict(labels).get("le")
        if bound is not None:
            rest = frozenset(one for one in labels if one[0] not in {"le", "__name__"})
            grouped.setdefault(rest, []).append((float(bound), count))
    return {labels: _quantile(quantile, sorted(found)) for labels, found in grouped.items()}


def _quantile(quantile: float, buckets: Sequence[tuple[float, float]]) -> float:
    total = buckets[-1][1]
    if len(buckets) < 2 or not math.isinf(buckets[-1][0]) or not total:
        return math.nan
    rank = quantile * total
    index = next(i for i, (_, count) in enumerate(buckets) if count >= rank)
    if index == len(buckets) - 1:
        return buckets[-2][0]
    if index == 0 and buckets[0][0] <= 0:
        return buckets[0][0]
    start, below = buckets[index - 1] if index else (0.0, 0.0)
    end, count = buckets[index]
    return start + (end - start) * (rank - below) / (count - below)
