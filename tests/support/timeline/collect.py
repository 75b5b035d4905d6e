"""Makes a timeline of what a scenario noted: load, observer, audit, findings."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from leadline_common.znodes import AuditEntry
from tests.support.checks.anomalies import Anomaly
from tests.support.checks.history import History
from tests.support.checks.sends import Outcome
from tests.support.faults.observer import Fault
from tests.support.timeline.model import (
    FaultSpan,
    LeaderSpan,
    OperationLane,
    PartitionLane,
    Timeline,
)

_NUMBER = re.compile(r"(\d+)")
MOST_SHOWN = 200
"""More anomalies than this are counted, not listed: nobody reads them one by one."""

_BEGINS = {
    "kill": "down",
    "terminate": "down",
    "SIGKILL": "down",
    "power cut": "down",
    "freeze": "frozen",
    "cut": "link",
    "slow": "link",
    "impair": "link",
    "fill": "disk",
    "fail fsync": "disk",
    "skew": "clock",
}
_ENDS = {
    "restart": "down",
    "resume": "frozen",
    "heal": "link",
    "free": "disk",
    "set right": "clock",
}


@dataclass(frozen=True, slots=True)
class Run:
    """What is known of a run that failed.

    `wall_minus_monotonic_s` turns the times of audit entries into those of everything else.
    """

    title: str
    verdict: str
    topic: str
    history: History
    faults: Sequence[Fault] = ()
    audit: Sequence[AuditEntry] = ()
    anomalies: Sequence[Anomaly] = ()
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    ended_s: float = 0.0
    wall_minus_monotonic_s: float = 0.0


def wall_minus_monotonic_s() -> float:
    """Return the difference of the two clocks, in seconds."""
    return time.time() - time.monotonic()


def timeline_of(run: Run) -> Timeline:
    """Make the timeline of a run; it begins with the first send."""
    sends = run.history.sends
    began_s = sends.began_s[0] if len(sends.began_s) else run.ended_s
    length_s = max(run.ended_s - began_s, 0.001)
    wall_s = began_s + run.wall_minus_monotonic_s
    return Timeline(
        title=run.title,
        verdict=run.verdict,
        began=datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds"),
        length_s=length_s,
        faults=_fault_spans(run.faults, began_s),
        partitions=_partitions(run.audit, run.topic, wall_s, length_s),
        operations=[*_producers(run.history, began_s), *_consumers(run.history, began_s)],
        anomalies=_first(run.anomalies, began_s),
        problems=run.problems,
        notes=[*run.notes, *_surplus(run.anomalies)],
    )


def _first(anomalies: Sequence[Anomaly], began_s: float) -> list[Anomaly]:
    """Return the earliest anomalies; those without a time come last."""
    timed = [
        one if one.at_s is None else replace(one, at_s=one.at_s - began_s) for one in anomalies
    ]
    return sorted(timed, key=lambda one: math.inf if one.at_s is None else one.at_s)[:MOST_SHOWN]


def _surplus(anomalies: Sequence[Anomaly]) -> list[str]:
    more = len(anomalies) - MOST_SHOWN
    return [f"{more} later anomalies are not listed"] if more > 0 else []


def _fault_spans(faults: Iterable[Fault], began_s: float) -> list[FaultSpan]:
    """Pair what ended or froze a process with what brought it back."""
    found: list[FaultSpan] = []
    for fault in faults:
        at_s = fault.at_s - began_s
        open_ = next(
            (
                number
                for number in reversed(range(len(found)))
                if found[number].target == fault.target and found[number].until_s is None
            ),
            None,
        )
        if open_ is not None and found[open_].action.startswith(_ENDS.get(fault.action, "-")):
            found[open_] = replace(found[open_], until_s=at_s)
        elif fault.action in _BEGINS:
            found.append(FaultSpan(fault.target, f"{_BEGINS[fault.action]}: {fault.action}", at_s))
        else:
            found.append(FaultSpan(fault.target, fault.action, at_s, at_s))
    return found


def _partitions(
    audit: Iterable[AuditEntry], topic: str, wall_s: float, length_s: float
) -> list[PartitionLane]:
    rows: dict[int, list[LeaderSpan]] = {}
    for entry in audit:
        at_s = min(length_s, max(0.0, entry.time / 1000 - wall_s))
        for change in entry.changes:
            if change.topic == topic:
                spans = rows.setdefault(change.partition, [])
                if spans:
                    spans[-1] = replace(spans[-1], until_s=max(at_s, spans[-1].since_s))
                span = LeaderSpan(at_s, length_s, *change.after, reason=change.reason)
                spans.append(span)
    return [PartitionLane(f"{topic}-{number}", spans) for number, spans in sorted(rows.items())]


def _producers(history: History, began_s: float) -> list[OperationLane]:
    sends = history.sends
    lanes = [OperationLane(f"producer {name}") for name in sends.producers.all]
    for row, outcome in enumerate(sends.outcome):
        is_pending = outcome == Outcome.PENDING
        at_s = (sends.began_s[row] if is_pending else sends.ended_s[row]) - began_s
        name = Outcome(outcome).name.lower()
        lanes[sends.producer[row]].rows.append((at_s, name, len(sends.ids_of(row))))
    return sorted(lanes, key=lambda lane: _natural(lane.name))


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort numbers within names by their value."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name)]


def _consumers(history: History, began_s: float) -> list[OperationLane]:
    lanes = []
    for consumer in history.consumers:
        lane = OperationLane(consumer.name)
        for polls in consumer.polls.values():
            lane.rows += [(at_s - began_s, "polled", len(ids)) for at_s, ids in polls.timed()]
        lanes.append(lane)
    return lanes
