"""One partition as all its readers together saw it, and what is wrong with each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.support.checks.anomalies import Anomalies, AnomalyKind, TopicPartition
from tests.support.checks.polls import Polls
from tests.support.checks.sends import Sends

_MOST_CONFLICTS = 10_000
"""How many are kept of one partition: more tell nothing new."""


_BACK = (AnomalyKind.INTERNAL_NONMONOTONIC_POLL, AnomalyKind.NONMONOTONIC_POLL)
_SKIP = (AnomalyKind.INTERNAL_POLL_SKIP, AnomalyKind.POLL_SKIP)
"""Within one poll, and across two."""


class Conflict(NamedTuple):
    """A reader got another value at an offset than a reader before it."""

    offset: int
    value_id: int
    known_id: int
    source: str


class PartitionLog:
    """The union of all reads of one partition.

    Attributes:
        at: the first value that was read at each offset, by its id.
        places: the lowest offset of each value.
        repeated: all offsets of the values that are at several.

    """

    def __init__(self, partition: TopicPartition, reads: Sequence[Polls]) -> None:
        self.partition = partition
        self.reads = reads
        self.at: dict[int, int] = {}
        self.conflicts: list[Conflict] = []
        self._seen_s: dict[int, float] | None = None
        for read in reads:
            for offset, ids in read.runs():
                self._take(offset, ids, read.source)
        self.places = dict(zip(self.at.values(), self.at.keys(), strict=True))
        self.repeated: dict[int, list[int]] = {}
        if len(self.places) < len(self.at) or self.conflicts:
            self._find_repeated()

    def _take(self, offset: int, ids: list[int], source: str) -> None:
        offsets = range(offset, offset + len(ids))
        known = list(map(self.at.get, offsets))
        if known == ids:
            return
        if known.count(None) == len(known):
            self.at.update(zip(offsets, ids, strict=True))
            return
        for place, mine, before in zip(offsets, ids, known, strict=True):
            if before is None:
                self.at[place] = mine
            elif before != mine and len(self.conflicts) < _MOST_CONFLICTS:
                self.conflicts.append(Conflict(place, mine, before, source))

    def _find_repeated(self) -> None:
        once: dict[int, int] = {}
        conflicts = ((one.value_id, one.offset) for one in self.conflicts)
        pairs = [(value_id, offset) for offset, value_id in self.at.items()]
        for value_id, offset in [*pairs, *conflicts]:
            first = once.setdefault(value_id, offset)
            if first != offset:
                offsets = self.repeated.setdefault(value_id, [first])
                if offset not in offsets:
                    offsets.append(offset)
        self.places = once | {value_id: min(all_) for value_id, all_ in self.repeated.items()}

    def offsets_of(self, value_id: int) -> list[int]:
        """Return all offsets of a value, in order."""
        if value_id in self.repeated:
            return sorted(self.repeated[value_id])
        return [self.places[value_id]] if value_id in self.places else []

    def between(self, before: int, offset: int) -> Iterator[int]:
        """Yield the offsets between two at which somebody read something."""
        if offset - before > len(self.at):
            return iter(sorted(one for one in self.at if before < one < offset))
        return (one for one in range(before + 1, offset) if one in self.at)

    def check(self, sends: Sends, found: Anomalies) -> None:
        """Find what is wrong with the reads themselves, whoever sent what.

        A value may be twice if all but the last are below the log start: a retry is not
        recognized by a replica that was made after retention had removed the records.
        """
        for read in self.reads:
            self._order(read, sends, found)
        self._conflicts(sends, found)
        log_start = max((read.log_start for read in self.reads), default=0)
        for value_id in self.repeated:
            offsets = self.offsets_of(value_id)
            if offsets[-2] < log_start:
                continue
            where = f"at {offsets}"
            value, when = sends.value_of(value_id), self.seen_at(value_id)
            found.add(AnomalyKind.DUPLICATE, self.partition, value, where, at_s=when)
        for value_id in self._strangers():
            where = f"at {self.offsets_of(value_id)}"
            value, when = sends.value_of(value_id), self.seen_at(value_id)
            found.add(AnomalyKind.UNSENT, self.partition, value, where, at_s=when)

    def _strangers(self) -> list[int]:
        if min(self.places, default=0) >= 0:
            return []
        return [value_id for value_id in self.places if value_id < 0]

    def _order(self, read: Polls, sends: Sends, found: Anomalies) -> None:
        """Look where the runs of one reader meet."""
        for before, offset, place in read.jumps():
            poll = read.poll_of(place)
            external = poll > 0 and read.poll_starts[poll] == place
            if external and poll in read.fresh:
                continue
            if offset <= before:
                kind = _BACK[external]
                value, detail = read.ids[place], f"{read.source} got offset {offset} after {before}"
            elif skipped := list(self.between(before, offset)):
                kind, value = _SKIP[external], self.at[skipped[0]]
                detail = f"offset {skipped[0]} was skipped by {read.source}, "
                detail += f"which got {offset} after {before}; {len(skipped)} in all"
            else:
                continue
            when, shown = read.poll_s[poll] if poll >= 0 else None, sends.value_of(value)
            found.add(kind, self.partition, shown, detail, at_s=when, who=read.source)

    def _conflicts(self, sends: Sends, found: Anomalies) -> None:
        for one in self.conflicts:
            detail = f"at {one.offset} for {one.source}, "
            detail += f"{sends.value_of(one.known_id)!r} for {self._first_reader(one.offset)}"
            value, when = sends.value_of(one.value_id), self.seen_at(one.value_id)
            kind = AnomalyKind.INCONSISTENT_OFFSETS
            found.add(kind, self.partition, value, detail, at_s=when, who=one.source)

    def _first_reader(self, offset: int) -> str:
        return next((read.source for read in self.reads if read.covers(offset)), "nobody")

    def seen_at(self, value_id: int) -> float | None:
        """Return when a poll first had a value; None if only reads without a time had it."""
        if self._seen_s is None:
            self._seen_s = {}
            for read in self.reads:
                for at_s, ids in read.timed():
                    for one in ids:
                        self._seen_s[one] = min(at_s, self._seen_s.get(one, at_s))
        return self._seen_s.get(value_id)
