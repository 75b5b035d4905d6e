"""Samples of one figure, and what is said about them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

OURS: Final = "leadline"


class Metric(msgspec.Struct, frozen=True):
    """A figure: its name, its unit, and whether more of it is better."""

    name: str
    unit: str
    more_is_better: bool = False


class Samples(msgspec.Struct, frozen=True):
    """One figure of one side, by round. `sequence` is the kind of work, `work` what was done."""

    sequence: str
    work: str
    metric: Metric
    system: str
    client: str
    values: tuple[float, ...]

    @property
    def is_ours(self) -> bool:
        """Whether these are Leadline's."""
        return self.system == OURS

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def key(self) -> tuple[str, str, str]:
        """What both sides have in common."""
        return (self.sequence, self.work, self.metric.name)

    @property
    def side(self) -> str:
        """The system and its client."""
        return f"{self.system} {self.client}".strip()


def ratio(ours: Samples, peer: Samples) -> float | None:
    """Return ours/peer: the median over the rounds, where each had its turn right after the other.

    Rounds that lack a side count for neither; where they cannot be told apart, the ratio is that of
    the medians. None if the peer's is 0.
    """
    if len(ours.values) != len(peer.values):
        return ours.median / peer.median if peer.median else None
    pairs = [own / other for own, other in zip(ours.values, peer.values, strict=True) if other]
    return statistics.median(pairs) if pairs else None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values is (nearest rank).

    Raises:
        ValueError: there are no values.

    """
    if not values:
        raise ValueError("there are no values")
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def shown(value: float) -> str:
    """Return a figure with three digits that mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
