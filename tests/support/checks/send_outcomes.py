"""What became of the sends of one partition: nothing lost, nothing extra, all in order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.checks.anomalies import Anomalies, AnomalyKind
from tests.support.checks.monotone import Interval, falls
from tests.support.checks.partition_log import PartitionLog
from tests.support.checks.sends import UNPLACED, Outcome, Sends

Audience = Mapping[str, set[int]]
"""Who read to the end, and the ids of the values that were delivered to it."""


@dataclass(frozen=True, slots=True)
class SendOutcomes:
    """Compares the sends of one partition (`rows`) with what was read of it."""

    sends: Sends
    rows: Sequence[int]
    log: PartitionLog
    found: Anomalies

    def check(self, audience: Audience) -> None:
        """Find everything that is wrong; `audience` are the consumers that saw all of it."""
        for row in self.rows:
            self._placement(row)
        self._foreigners()
        self._external_order()
        for read in self.log.reads:
            if read.complete:
                detail = f"not read by {read.source}"
                self._missing(AnomalyKind.LOST, set(read.ids), detail, read.log_start)
        for name, delivered in audience.items():
            self._missing(AnomalyKind.UNSEEN, delivered, f"never delivered to {name}")

    def _add(self, kind: AnomalyKind, value_id: int, detail: str) -> None:
        row = self.sends.row_of(value_id)
        ended_s = self.sends.ended_s[row]
        producer = self.sends.producers.all[self.sends.producer[row]]
        self.found.add(
            kind,
            self.log.partition,
            self.sends.value_of(value_id),
            detail,
            at_s=None if ended_s == float("inf") else ended_s,
            who=f"producer {producer}",
        )

    def _placement(self, row: int) -> None:
        """Look at where the values of one send are."""
        ids = self.sends.ids_of(row)
        places = list(map(self.log.places.get, ids))
        base, outcome = self.sends.base[row], self.sends.outcome[row]
        if outcome == Outcome.ACKED and places == list(range(base, base + len(ids))):
            return
        there = [(value_id, at) for value_id, at in zip(ids, places, strict=True) if at is not None]
        if outcome == Outcome.REFUSED:
            for value_id, _ in there:
                where = f"at {self.log.offsets_of(value_id)}"
                self._add(AnomalyKind.ABORTED_READ, value_id, where)
        if base != UNPLACED:
            self._misplaced(row, there)
        self._internal_order(there)

    def _misplaced(self, row: int, there: Iterable[tuple[int, int]]) -> None:
        shift = self.sends.base[row] - self.sends.first[row]
        for value_id, _ in there:
            offsets = self.log.offsets_of(value_id)
            if value_id + shift not in offsets:
                detail = f"at {offsets}, acknowledged at {value_id + shift}"
                self._add(AnomalyKind.MISPLACED, value_id, detail)

    def _internal_order(self, there: Sequence[tuple[int, int]]) -> None:
        highest = -1
        for value_id, place in there:
            if place < highest:
                detail = f"at {place}, after one at {highest} in the same send"
                self._add(AnomalyKind.INTERNAL_NONMONOTONIC_SEND, value_id, detail)
            highest = max(highest, place)

    def _foreigners(self) -> None:
        """Find values that were sent to another partition than this one."""
        own = sum(self._count_here(row) for row in self.rows)
        placed = len(self.log.places) - len(self._strangers())
        if own == placed:
            return
        for value_id in self.log.places:
            if value_id >= 0 and self.sends.partition_of(value_id) != self.log.partition:
                where = f"at {self.log.offsets_of(value_id)}"
                sent_to = self.sends.partition_of(value_id)
                self._add(AnomalyKind.MISPLACED, value_id, f"{where}, but sent to {sent_to}")

    def _count_here(self, row: int) -> int:
        ids = self.sends.ids_of(row)
        return sum(map(self.log.places.__contains__, ids))

    def _strangers(self) -> list[int]:
        if min(self.log.places, default=0) >= 0:
            return []
        return [value_id for value_id in self.log.places if value_id < 0]

    def _external_order(self) -> None:
        """Find sends that began after another's acknowledgement, but stand before it."""
        by_producer: dict[int, tuple[list[Interval], list[Interval]]] = {}
        for row in self.rows:
            places = self._extent(row)
            if places is None:
                continue
            interval = Interval(self.sends.began_s[row], self.sends.ended_s[row], *places, row)
            all_, acked = by_producer.setdefault(self.sends.producer[row], ([], []))
            all_.append(interval)
            if self.sends.outcome[row] == Outcome.ACKED:
                acked.append(interval)
        for all_, acked in by_producer.values():
            for row, earlier in falls(all_, acked):
                self._out_of_order(row, earlier)

    def _extent(self, row: int) -> tuple[int, int] | None:
        """Return the lowest and the highest offset of a send's values."""
        ids = self.sends.ids_of(row)
        first, last = self.log.places.get(ids[0]), self.log.places.get(ids[-1])
        if first is not None and last is not None and last - first == len(ids) - 1:
            return first, last
        there = [at for at in map(self.log.places.get, ids) if at is not None]
        return (min(there), max(there)) if there else None

    def _out_of_order(self, row: int, earlier: int) -> None:
        low, high = self._extent(row), self._extent(earlier)
        assert low is not None
        assert high is not None
        value_id, before = self._value_at(row, low[0]), self._value_at(earlier, high[1])
        detail = f"at {low[0]}, sent after {before[1]!r} at {high[1]} was acked"
        self._add(AnomalyKind.NONMONOTONIC_SEND, value_id[0], detail)

    def _value_at(self, row: int, offset: int) -> tuple[int, Hashable]:
        ids = self.sends.ids_of(row)
        found = next(one for one in ids if self.log.places.get(one) == offset)
        return found, self.sends.value_of(found)

    def _missing(
        self, kind: AnomalyKind, present: set[int], detail: str, log_start: int = 0
    ) -> None:
        """Find what is not `present`; before `log_start` it may be gone."""
        for row in self.rows:
            if self.sends.outcome[row] != Outcome.ACKED:
                continue
            ids = self.sends.ids_of(row)
            if present.issuperset(ids):
                continue
            for value_id in ids:
                at = self.sends.offset_of(value_id)
                if value_id not in present and (at is None or at >= log_start):
                    self._add(kind, value_id, f"acknowledged at {at}, {detail}")
