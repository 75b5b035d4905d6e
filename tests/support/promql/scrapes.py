"""Scraped samples over time, as Prometheus would store them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
LOOKBACK_S = 300.0
"""How old a sample may be that still is a series' present value."""


class Target(NamedTuple):
    """What is scraped, with the labels of the scrape configuration."""

    job: str
    instance: str
    cluster: str = "main"

    def labels(self) -> dict[str, str]:
        """Return the labels that each sample of the target gets."""
        return self._asdict()


class Point(NamedTuple):
    """A value at a time in seconds."""

    at_s: float
    value: float


@dataclass(eq=False)
class Scrapes:
    """All series, by metric name and labels. Times rise from scrape to scrape."""

    series: dict[str, dict[Labels, list[Point]]] = field(default_factory=dict)
    ends: dict[tuple[str, Labels], float] = field(default_factory=dict)
    """When a series was found to have ended: its last value is no present one."""

    def add(self, at_s: float, target: Target, text: str | None) -> None:
        """Store what a target answered, None if it did not answer."""
        own = target.labels()
        seen = {self._store("up", own, at_s, 0.0 if text is None else 1.0)}
        for family in text_string_to_metric_families(text or ""):
            for sample in family.samples:
                labels = {**sample.labels, **own}
                seen.add(self._store(sample.name, labels, at_s, sample.value))
        self._end(own, seen, at_s)

    def add_series(self, name: str, labels: Mapping[str, str], points: Iterable[Point]) -> None:
        """Store a series of its own, for tests of the evaluation."""
        self.series.setdefault(name, {})[frozenset(labels.items())] = list(points)

    def _store(
        self, name: str, labels: Mapping[str, str], at_s: float, value: float
    ) -> tuple[str, Labels]:
        key = frozenset(labels.items())
        self.series.setdefault(name, {}).setdefault(key, []).append(Point(at_s, value))
        self.ends.pop((name, key), None)
        return name, key

    def _end(self, own: Mapping[str, str], seen: set[tuple[str, Labels]], at_s: float) -> None:
        """End the series of a target that this scrape did not have (Prometheus's staleness)."""
        for name, found in self.series.items():
            for labels in found:
                if own.items() <= set(labels) and (name, labels) not in seen:
                    self.ends.setdefault((name, labels), at_s)

    def instant(self, name: str, labels: Labels, at_s: float) -> float | None:
        """Return the present value of a series, None if it has none."""
        if self.ends.get((name, labels), at_s + 1) <= at_s:
            return None
        past = [p for p in self.series[name][labels] if at_s - LOOKBACK_S < p.at_s <= at_s]
        return past[-1].value if past else None

    def window(self, name: str, labels: Labels, at_s: float, range_s: float) -> Sequence[Point]:
        """Return the points of a series within a range before a time."""
        return [p for p in self.series[name][labels] if at_s - range_s <= p.at_s <= at_s]

    def label_names(self, name: str) -> set[str]:
        """Return every label that a metric was seen with."""
        return {label for labels in self.series.get(name, ()) for label, _ in labels}
