"""What the members of a group did, by their own logs, and what is wrong with it.

A member (`tests.support.groups.member`) writes a line for each thing that happens to
it: `assigned`, `revoked`, `lost`, `consumed`, `committed`, `refused`, `closed`. Times are
those of CLOCK_MONOTONIC, which all processes of a machine share, and are taken when
the application hears of it: before a revocation is answered, after an assignment
has come. So with one owner at a time, the holds of a partition never overlap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.support.checks.anomalies import Anomalies
from tests.support.checks.group_history import Commit, GroupHistory

Partition = tuple[str, int]
Row = tuple[str, int, int, int]
"""Topic, partition, first offset, offset after the last; 0 where offsets do not matter."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a member's log."""

    member: str
    at_s: float
    kind: str
    rows: tuple[Row, ...] = ()
    detail: str = ""

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that it is about."""
        return tuple((topic, number) for topic, number, _, _ in self.rows)


@dataclass(frozen=True, slots=True)
class Freeze:
    """A time in which a process did nothing at all."""

    member: str
    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Hold:
    """A member believed that a partition was its own."""

    member: str
    partition: Partition
    since_s: float
    until_s: float

    def __str__(self) -> str:
        topic, number = self.partition
        return f"{self.member} held {topic}-{number} from {self.since_s:.3f} to {self.until_s:.3f}"


class EventReader:
    """Reads a member's log as it grows; a line that a kill has cut is left out."""

    def __init__(self, member: str, path: Path) -> None:
        self.events: list[Event] = []
        self._member = member
        self._path = path
        self._read = 0

    def read(self) -> list[Event]:
        """Return all events until now."""
        if self._path.exists():
            with self._path.open("rb") as log:
                log.seek(self._read)
                lines, _, _ = log.read().rpartition(b"\n")
            if lines:
                self._read += len(lines) + 1
                self.events += [self._event(line) for line in lines.split(b"\n")]
        return self.events

    def _event(self, line: bytes) -> Event:
        fields = json.loads(line)
        rows = tuple((topic, number, low, high) for topic, number, low, high in fields["rows"])
        return Event(self._member, fields["at_s"], fields["kind"], rows, fields["detail"])


def holds_of(
    events: Sequence[Event], *, killed: bool = False, freezes: Iterable[Freeze] = ()
) -> list[Hold]:
    """Return the holds of one member, from its events in order.

    A member consumes during its lease only, which may end long before it hears of that: while it
    is frozen, or no coordinator can be reached. So what it hears to have lost, it held until it
    last consumed of it, or until it froze. Who was `killed` before it heard of anything held each
    partition until it last consumed of it: an answer to a commit may come late. Of what it neither
    consumed nor gave up itself it held nothing: its lease may have been over when it was told.
    """
    held: dict[Partition, float] = {}
    used: dict[Partition, float] = {}
    found = []
    for event in events:
        if event.kind == "assigned":
            held |= dict.fromkeys(event.partitions, event.at_s)
        elif event.kind == "consumed":
            used |= dict.fromkeys(event.partitions, event.at_s)
        elif event.kind in {"revoked", "lost"}:
            for partition in event.partitions:
                if (since_s := held.pop(partition, None)) is not None:
                    let_go_s = _let_go_s(event, since_s, freezes)
                    until_s = max(let_go_s, used.get(partition, let_go_s))
                    hold = Hold(event.member, partition, since_s, until_s)
                    if event.kind == "revoked" or _was_held(hold, used):
                        found.append(hold)
    member = events[0].member if events else ""
    closed_s = events[-1].at_s if events and events[-1].kind == "closed" else math.inf
    for partition, since_s in held.items():
        until_s = max(since_s, used.get(partition, since_s)) if killed else closed_s
        hold = Hold(member, partition, since_s, until_s)
        if not killed or _was_held(hold, used):
            found.append(hold)
    return found


def _was_held(hold: Hold, used: Mapping[Partition, float]) -> bool:
    """Return whether a hold lasted, or something was consumed in it."""
    return hold.since_s < hold.until_s or used.get(hold.partition) == hold.since_s


def _let_go_s(event: Event, since_s: float, freezes: Iterable[Freeze]) -> float:
    """Return when a member gave something up, or froze before it heard that it has lost it."""
    if event.kind == "revoked":
        return event.at_s
    slept = [f.since_s for f in freezes if since_s <= f.since_s and f.until_s <= event.at_s]
    return min(slept, default=since_s)


def two_owners(holds: Iterable[Hold]) -> list[str]:
    """Say where two members held one partition at once."""
    found = []
    by_partition: dict[Partition, list[Hold]] = {}
    for hold in holds:
        by_partition.setdefault(hold.partition, []).append(hold)
    for mine in by_partition.values():
        mine.sort(key=lambda hold: (hold.since_s, hold.until_s))
        longest = mine[0]
        for hold in mine[1:]:
            if hold.since_s < longest.until_s:
                found.append(f"two owners: {longest}, {hold}")
            longest = max(longest, hold, key=lambda one: one.until_s)
    return found


def consumed_without_holding(events: Iterable[Event], holds: Iterable[Hold]) -> list[str]:
    """Say where a member consumed what was not its own at that moment."""
    own: dict[tuple[str, Partition], list[Hold]] = {}
    for hold in holds:
        own.setdefault((hold.member, hold.partition), []).append(hold)
    return [
        f"{event.member} consumed {topic}-{number} at {event.at_s:.3f} without holding it"
        for event in events
        if event.kind == "consumed"
        for topic, number in event.partitions
        if not any(
            hold.since_s <= event.at_s <= hold.until_s
            for hold in own.get((event.member, (topic, number)), ())
        )
    ]


def group_history(
    name: str, events: Iterable[Event], instances: Mapping[str, str] | None = None
) -> GroupHistory:
    """Return what members wrote down as the history of their group, for I10.

    A process with the same entry in `instances` as another one before is the same (static) member.
    Without a generation an assignment says nothing; a commit that does not say when it was
    sent was sent when it was answered.
    """
    history = GroupHistory(name)
    for event in events:
        if event.kind == "assigned" and event.detail:
            owner = (instances or {}).get(event.member, event.member)
            history.assigned(owner, int(event.detail), event.partitions, event.at_s)
        for topic, number, _, after in event.rows:
            if event.kind == "consumed":
                history.delivered((topic, number), after, event.at_s)
            elif event.kind == "committed":
                began_s = float(event.detail or event.at_s)
                commit = Commit(after, began_s, event.at_s, event.member)
                history.committed((topic, number), commit)
    return history


def unconsumed(acked: Mapping[Partition, Iterable[int]], events: Iterable[Event]) -> list[str]:
    """Say which acknowledged offsets nobody consumed."""
    ranges: dict[Partition, list[tuple[int, int]]] = {}
    for event in events:
        if event.kind == "consumed":
            for topic, number, first, after in event.rows:
                ranges.setdefault((topic, number), []).append((first, after))
    found = []
    for (topic, number), offsets in acked.items():
        seen = {n for low, high in ranges.get((topic, number), ()) for n in range(low, high)}
        if missed := sorted(set(offsets) - seen):
            found.append(f"{len(missed)} of {topic}-{number} never consumed, first {missed[0]}")
    return found


def violations(
    group: str,
    events: Sequence[Event],
    holds: Sequence[Hold],
    acked: Mapping[Partition, Iterable[int]],
    instances: Mapping[str, str] | None = None,
) -> list[str]:
    """Say everything that is wrong with what the members of a group did.

    `events` are those of all members in order of time, `acked` the acknowledged offsets, and
    `instances` the ids of static members.
    """
    anomalies = Anomalies()
    group_history(group, events, instances).check(anomalies)
    return [
        *two_owners(holds),
        *consumed_without_holding(events, holds),
        *map(str, anomalies.all()),
        *unconsumed(acked, events),
    ]


def given_up(events: Iterable[Event], since_s: float) -> set[tuple[str, Partition]]:
    """Return (member, partition) for all that members gave up or lost since a moment."""
    return {
        (event.member, partition)
        for event in events
        if event.kind in {"revoked", "lost"} and event.at_s >= since_s
        for partition in event.partitions
    }


def longest_pause_s(events: Iterable[Event], partition: Partition) -> float:
    """Return the longest time in which nothing of a partition was consumed."""
    times = sorted(
        event.at_s for event in events if event.kind == "consumed" and partition in event.partitions
    )
    return max((after - before for before, after in pairwise(times)), default=0.0)
