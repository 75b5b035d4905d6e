"""What a timeline shows, before it is drawn. Times are seconds since the run began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.support.checks.anomalies import Anomaly

OUTCOMES = ("acked", "unknown", "refused", "pending", "polled")
"""How operations can end, in the order in which they are stacked."""


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """A process was down, frozen or told something; without an end it was a moment."""

    target: str
    action: str
    since_s: float
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class LeaderSpan:
    """A partition had this leader (-1: none), leader epoch and ISR."""

    since_s: float
    until_s: float
    leader: int
    epoch: int
    isr: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartitionLane:
    """The leaders of one partition."""

    name: str
    spans: Sequence[LeaderSpan]

    def terms(self) -> list[LeaderSpan]:
        """Return the spans of one leader and epoch as one; the ISR is that of the first."""
        found: list[LeaderSpan] = []
        for span in self.spans:
            if found and (found[-1].leader, found[-1].epoch) == (span.leader, span.epoch):
                found[-1] = replace(found[-1], until_s=span.until_s)
            else:
                found.append(span)
        return found


@dataclass(slots=True)
class OperationLane:
    """What one producer or consumer did, as numbers of records."""

    name: str
    rows: list[tuple[float, str, int]] = field(default_factory=list)
    """(time of the outcome, outcome, records)."""

    def buckets(self, length_s: float, count: int) -> list[Mapping[str, int]]:
        """Return the records by outcome in each of so many equal parts of the time."""
        found: list[dict[str, int]] = [{} for _ in range(count)]
        for at_s, outcome, records in self.rows:
            place = min(count - 1, max(0, int(at_s / length_s * count)))
            found[place][outcome] = found[place].get(outcome, 0) + records
        return list(found)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A whole run. `verdict` is why it failed; `problems` are findings without a time."""

    title: str
    verdict: str
    began: str
    length_s: float
    faults: Sequence[FaultSpan] = ()
    partitions: Sequence[PartitionLane] = ()
    operations: Sequence[OperationLane] = ()
    anomalies: Sequence[Anomaly] = ()
    """Their `at_s` is in seconds since the run began, too."""
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    """What could not be found out."""

    def totals(self) -> dict[str, int]:
        """Return how many records had each outcome."""
        found: dict[str, int] = {}
        for lane in self.operations:
            for _, outcome, records in lane.rows:
                found[outcome] = found.get(outcome, 0) + records
        return found

    def brokers(self) -> list[int]:
        """Return the brokers that were in any ISR."""
        return sorted({one for lane in self.partitions for span in lane.spans for one in span.isr})

    def lane_of(self, anomaly: Anomaly) -> str:
        """Return the lane in which an anomaly is shown: of who saw it, else of its partition."""
        names = {lane.name for lane in self.operations}
        topic, number = anomaly.partition
        return anomaly.who if anomaly.who in names else f"{topic}-{number}"

    def placed(self) -> Iterator[tuple[int, Anomaly]]:
        """Yield (number, anomaly) of those that have a time and a lane."""
        lanes = {lane.name for lane in self.operations}
        lanes |= {lane.name for lane in self.partitions}
        for number, anomaly in enumerate(self.anomalies, 1):
            if anomaly.at_s is not None and self.lane_of(anomaly) in lanes:
                yield number, anomaly
