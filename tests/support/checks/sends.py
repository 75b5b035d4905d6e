"""All sends of a history, in columns: five million records take some hundred megabytes.

A value gets a number, its *id*, when it is sent. The values of one send have consecutive
ids, so that a send is a row of a few numbers, however many records it has.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from tests.support.checks.anomalies import TopicPartition

K = TypeVar("K", bound=Hashable)

UNPLACED = -1
"""The base offset of a send that has none, or whose answer did not say it."""


class Outcome(IntEnum):
    """How a send ended."""

    PENDING = 0
    ACKED = 1
    REFUSED = 2
    """Definitely nothing was appended."""
    UNKNOWN = 3


class Numbered(Generic[K]):
    """Things that are numbered in the order of their first appearance."""

    def __init__(self) -> None:
        self.of: dict[K, int] = {}
        self.all: list[K] = []

    def number(self, thing: K) -> int:
        """Return the number of a thing, which gets one if it is new."""
        found = self.of.setdefault(thing, len(self.all))
        if found == len(self.all):
            self.all.append(thing)
        return found


@dataclass(slots=True)
class Sends:
    """A row for each send, in the order in which they began.

    Attributes:
        ids: the id of each value.
        values: the values by id.
        first: the id of a send's first value.
        partition: its partition, as a number of `partitions`; likewise `producer`.
        began_s: when it began; `ended_s`: when its outcome was known.
        base: the offset of its first record, or `UNPLACED`.

    """

    ids: dict[Hashable, int] = field(default_factory=dict)
    values: list[Hashable] = field(default_factory=list)
    first: array[int] = field(default_factory=lambda: array("i"))
    partition: array[int] = field(default_factory=lambda: array("i"))
    producer: array[int] = field(default_factory=lambda: array("i"))
    began_s: array[float] = field(default_factory=lambda: array("d"))
    ended_s: array[float] = field(default_factory=lambda: array("d"))
    outcome: array[int] = field(default_factory=lambda: array("b"))
    base: array[int] = field(default_factory=lambda: array("q"))
    partitions: Numbered[TopicPartition] = field(default_factory=Numbered)
    producers: Numbered[Hashable] = field(default_factory=Numbered)
    strangers: Numbered[Hashable] = field(default_factory=Numbered)
    """Values that were read before they were sent; the id of number n is -2 - n."""

    def begin(
        self, values: Sequence[Hashable], partition: TopicPartition, producer: Hashable, at_s: float
    ) -> int:
        """Add a send and return its row.

        Raises:
            ValueError: a value was sent before; checks need unique values.

        """
        start = len(self.values)
        if not self.ids.keys().isdisjoint(values) or len(set(values)) < len(values):
            again = next(v for n, v in enumerate(values) if v in self.ids or v in values[:n])
            raise ValueError(f"{again!r} was sent before")
        self.ids.update(zip(values, range(start, start + len(values)), strict=True))
        self.values.extend(values)
        self.first.append(start)
        self.partition.append(self.partitions.number(partition))
        self.producer.append(self.producers.number(producer))
        self.began_s.append(at_s)
        self.ended_s.append(float("inf"))
        self.outcome.append(Outcome.PENDING)
        self.base.append(UNPLACED)
        return len(self.first) - 1

    def end(self, row: int, outcome: Outcome, at_s: float, base_offset: int = UNPLACED) -> None:
        """Note how a send ended."""
        self.outcome[row] = outcome
        self.ended_s[row] = at_s
        self.base[row] = base_offset

    def ids_of(self, row: int) -> range:
        """Return the ids of a send's values."""
        following = row + 1
        end = self.first[following] if following < len(self.first) else len(self.values)
        return range(self.first[row], end)

    def row_of(self, value_id: int) -> int:
        """Return the send that a value belongs to."""
        return bisect_right(self.first, value_id) - 1

    def row_of_value(self, value: Hashable) -> int:
        """Return the send of one value, which must be its only one."""
        row = self.row_of(self.ids[value])
        if len(self.ids_of(row)) > 1:
            raise ValueError(f"{value!r} was sent together with others")
        return row

    def offset_of(self, value_id: int) -> int | None:
        """Return where a value was acknowledged, if the answer said so."""
        row = self.row_of(value_id)
        base = self.base[row]
        return None if base == UNPLACED else base + value_id - self.first[row]

    def partition_of(self, value_id: int) -> TopicPartition:
        """Return the partition that a value was sent to."""
        return self.partitions.all[self.partition[self.row_of(value_id)]]

    def id_of(self, value: Hashable) -> int:
        """Return the id of a value that was read: below -1 if it was not sent."""
        found = self.ids.get(value)
        return -2 - self.strangers.number(value) if found is None else found

    def value_of(self, value_id: int) -> Hashable:
        """Return a value by its id."""
        return self.values[value_id] if value_id >= 0 else self.strangers.all[-2 - value_id]

    def rows(self, outcome: Outcome) -> Iterator[int]:
        """Yield the sends that ended in a certain way."""
        return (row for row, one in enumerate(self.outcome) if one == outcome)

    def by_partition(self) -> dict[TopicPartition, array[int]]:
        """Return the rows of each partition's sends."""
        found: dict[TopicPartition, array[int]] = {name: array("i") for name in self.partitions.all}
        columns = list(found.values())
        for row, number in enumerate(self.partition):
            columns[number].append(row)
        return found
