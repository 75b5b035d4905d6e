"""The latest offsets that readers were told: they must never fall (I8)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.support.checks.anomalies import Anomalies, AnomalyKind, TopicPartition
from tests.support.checks.monotone import Interval, falls


@dataclass(slots=True)
class AdvertisedEnds:
    """Samples of latest offsets, whoever answered; times are seconds on one clock."""

    _rows: dict[TopicPartition, list[Interval]] = field(default_factory=lambda: defaultdict(list))
    _sources: dict[TopicPartition, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, partition: TopicPartition, end: int, began_s: float, ended_s: float, source: str
    ) -> None:
        """Note an answer: the latest offset, and when it was asked for and received."""
        rows = self._rows[partition]
        rows.append(Interval(began_s, ended_s, end, end, len(rows)))
        self._sources[partition].append(source)

    def check(self, found: Anomalies) -> None:
        """Find ends that are lower than one that was known before they were asked for."""
        for partition, rows in self._rows.items():
            sources = self._sources[partition]
            for number, earlier in falls(rows, rows):
                detail = f"{sources[number]} was told {rows[number].low}, "
                detail += f"after {rows[earlier].high} to {sources[earlier]}"
                found.add(
                    AnomalyKind.LATEST_OFFSET_FELL,
                    partition,
                    rows[number].low,
                    detail,
                    at_s=rows[number].ended_s,
                    who=sources[number],
                )
