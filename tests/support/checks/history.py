"""Black-box checks of what was sent against what was read; used by the simulator and by e2e tests.

A send ends in one of three ways: *acked* with its offset, *refused* (definitely
nothing was appended), or *unknown*. Values are unique over a whole history. The
reads given to `check` are the final ones, made after everything has healed:
whole partitions, and replicas' files where a test can read them.

The anomalies are those of the Jepsen checker for Kafka-like queues that a
history without transactions can show.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

TopicPartition = tuple[str, int]


class AnomalyKind(StrEnum):
    """What is wrong."""

    LOST = "lost"
    """Acknowledged, but not read at the end."""
    MISPLACED = "misplaced"
    """Acknowledged at another offset, or in another partition, than it is read at."""
    DUPLICATED = "duplicated"
    """One value at two offsets."""
    REORDERED = "reordered"
    """A producer's later send stands before an earlier one, though that was answered first."""
    ABORTED_READ = "aborted read"
    """Refused for certain, and read all the same."""
    UNSENT = "unsent"
    """Read, but never sent."""
    INCONSISTENT = "inconsistent"
    """Two values at one offset, in two reads or replicas."""
    NON_MONOTONIC = "non-monotonic"
    """A read runs backwards or repeats an offset."""
    SKIPPED = "skipped"
    """A read leaves out an offset that another read of the same partition has."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that is wrong, and where."""

    kind: AnomalyKind
    partition: TopicPartition
    value: Hashable
    detail: str

    def __str__(self) -> str:
        topic, number = self.partition
        return f"{self.kind} in {topic}-{number}: {self.value!r}, {self.detail}"


@dataclass(slots=True)
class Send:
    """One value that a producer sent. `offset` is set when it was acked, if the answer said it."""

    value: Hashable
    partition: TopicPartition
    producer: Hashable
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """What one reader got of one partition: (offset, value) pairs in the order in which they came.

    `source` names the reader or replica. A `complete` read reached the end of
    the partition; an incomplete one shows no losses.
    """

    partition: TopicPartition
    records: Sequence[tuple[int, Hashable]]
    source: str = "reader"
    complete: bool = True


@dataclass(slots=True)
class History:
    """Every send and how it ended, in the order in which things happened."""

    sent: dict[Hashable, Send] = field(default_factory=dict)
    acked: dict[Hashable, Send] = field(default_factory=dict)
    refused: dict[Hashable, Send] = field(default_factory=dict)
    unknown: dict[Hashable, Send] = field(default_factory=dict)
    _answers: list[Hashable] = field(default_factory=list)
    _sends: dict[Hashable, int] = field(default_factory=dict)

    def send(self, value: Hashable, topic: str, partition: int, producer: Hashable = 0) -> None:
        """Note that a value is being sent.

        Raises:
            ValueError: the value was sent before; checks need unique values.

        """
        if value in self.sent:
            raise ValueError(f"{value!r} was sent before")
        self.sent[value] = Send(value, (topic, partition), producer)
        self._sends[value] = len(self._answers)

    def ack(self, value: Hashable, offset: int | None = None) -> None:
        """Note that a value was acknowledged."""
        send = self.sent[value]
        send.offset = offset
        self.acked[value] = send
        self._answers.append(value)

    def refuse(self, value: Hashable) -> None:
        """Note that a value was refused for good: nothing was appended."""
        self.refused[value] = self.sent[value]

    def give_up(self, value: Hashable) -> None:
        """Note that the outcome of a send will never be known."""
        self.unknown[value] = self.sent[value]

    def check(self, reads: Iterable[Read]) -> list[Anomaly]:
        """Return everything that is wrong with these final reads."""
        reads = list(reads)
        found: list[Anomaly] = []
        for read in reads:
            found += _disorder(read)
        for partition in dict.fromkeys(read.partition for read in reads):
            mine = [read for read in reads if read.partition == partition]
            found += _disagreements(mine)
            found += self._wrong_sends(mine)
        found += self._losses(reads)
        return found

    def _wrong_sends(self, reads: list[Read]) -> list[Anomaly]:
        """Look at the reads of one partition."""
        partition = reads[0].partition
        offsets: dict[Hashable, dict[int, None]] = {}
        for read in reads:
            for offset, value in read.records:
                offsets.setdefault(value, {})[offset] = None
        found: list[Anomaly] = []
        for value, places in offsets.items():
            where = f"at {sorted(places)}"
            send = self.sent.get(value)
            if len(places) > 1:
                found.append(Anomaly(AnomalyKind.DUPLICATED, partition, value, where))
            if send is None:
                found.append(Anomaly(AnomalyKind.UNSENT, partition, value, where))
                continue
            if value in self.refused:
                found.append(Anomaly(AnomalyKind.ABORTED_READ, partition, value, where))
            misplaced = send.offset is not None and send.offset not in places
            if send.partition != partition or misplaced:
                expected = f"{where}, acknowledged at {send.offset} of {send.partition}"
                found.append(Anomaly(AnomalyKind.MISPLACED, partition, value, expected))
        return found + self._reordered(partition, {v: min(p) for v, p in offsets.items()})

    def _reordered(self, partition: TopicPartition, offsets: dict[Hashable, int]) -> list[Anomaly]:
        """Find sends that began after another's acknowledgement, but stand before it.

        Sends that overlap in time may stand in any order.
        """
        found: list[Anomaly] = []
        highest: dict[Hashable, tuple[int, Hashable]] = {}
        answers = iter(self._answers)
        heard = 0
        for value, answered_before in self._sends.items():
            while heard < answered_before:
                acked = next(answers)
                heard += 1
                if acked in offsets and self.sent[acked].partition == partition:
                    producer = self.sent[acked].producer
                    last = (offsets[acked], acked)
                    highest[producer] = max(highest.get(producer, last), last, key=lambda p: p[0])
            last_of = highest.get(self.sent[value].producer)
            if value in offsets and last_of is not None and offsets[value] < last_of[0]:
                detail = f"at {offsets[value]}, sent after {last_of[1]!r} at {last_of[0]} was acked"
                found.append(Anomaly(AnomalyKind.REORDERED, partition, value, detail))
        return found

    def _losses(self, reads: list[Read]) -> list[Anomaly]:
        """Find acknowledged values that a complete read of their partition does not show."""
        found = []
        for read in reads:
            if not read.complete:
                continue
            shown = {value for _, value in read.records}
            found += [
                Anomaly(
                    AnomalyKind.LOST,
                    read.partition,
                    send.value,
                    f"acknowledged at {send.offset}, not read by {read.source}",
                )
                for send in self.acked.values()
                if send.partition == read.partition and send.value not in shown
            ]
        return found


def _disorder(read: Read) -> list[Anomaly]:
    """Find offsets that do not rise within one read."""
    return [
        Anomaly(
            AnomalyKind.NON_MONOTONIC,
            read.partition,
            value,
            f"{read.source} got offset {offset} after {before}",
        )
        for (before, _), (offset, value) in pairwise(read.records)
        if offset <= before
    ]


def _disagreements(reads: list[Read]) -> list[Anomaly]:
    """Find offsets with two values, and offsets that one read has and another jumps over."""
    found: list[Anomaly] = []
    values: dict[int, tuple[Hashable, str]] = {}
    for read in reads:
        for offset, value in read.records:
            known, source = values.setdefault(offset, (value, read.source))
            if known != value:
                detail = f"at {offset} for {read.source}, {known!r} for {source}"
                found.append(Anomaly(AnomalyKind.INCONSISTENT, read.partition, value, detail))
    for read in reads:
        mine = {offset for offset, _ in read.records}
        if mine:
            low, high = min(mine), max(mine)
            found += [
                Anomaly(
                    AnomalyKind.SKIPPED,
                    read.partition,
                    values[offset][0],
                    f"offset {offset} was skipped by {read.source}",
                )
                for offset in sorted(values)
                if low < offset < high and offset not in mine
            ]
    return found
