"""What a query's filters say about topics, partitions, offsets and times, so that less is read.

Filters on topic, partition and offset are carried out here, exactly; one on timestamp only moves
the start, to the first record that is as new, and Spark still applies it to each row. Columns of
this kind are never null.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from leadline_client.wire import TopicPartition
from leadline_spark.read.planning import Range

Test = Callable[[Any], bool]
_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
_TYPES: dict[str, type] = {"topic": str, "partition": int}
_SINCE = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)
_COLUMNS = ("topic", "partition", "offset", "timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(slots=True)
class PushedFilters:
    """What pushed filters leave of a read.

    Offsets [`first`, `beyond`) of the partitions that all tests accept; `since_ms` is a time before
    which nothing is wanted.
    """

    tests: list[tuple[str, Test]] = field(default_factory=list)
    first: int = 0
    beyond: int | None = None
    since_ms: int | None = None

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take what can be taken, and return what Spark has to go on applying."""
        return [one for one in filters if not self._take(one)]

    def wants(self, topic_partition: TopicPartition) -> bool:
        """Tell whether anything of a partition is wanted."""
        return all(test(getattr(topic_partition, column)) for column, test in self.tests)

    def of(self, ranges: Sequence[Range]) -> list[Range]:
        """Return what is left of these ranges."""
        return [self._cut(one) for one in ranges if self.wants(one.topic_partition)]

    def _cut(self, one: Range) -> Range:
        start = min(max(one.start, self.first), one.end)
        end = one.end if self.beyond is None else max(start, min(one.end, self.beyond))
        return replace(one, start=start, end=end)

    def _take(self, one: Filter) -> bool:
        column = _column(one)
        if isinstance(one, IsNotNull):
            return column in _COLUMNS
        if column == "offset":
            return self._take_offset(one)
        if column == "timestamp":
            self._take_time(one)
            return False
        test = _test(one, _TYPES[column]) if column in _TYPES else None
        if test is not None and column is not None:
            self.tests.append((column, test))
        return test is not None

    def _take_offset(self, one: Filter) -> bool:
        value = getattr(one, "value", None)
        if type(value) is not int:
            return False
        first, beyond = _bounds(one, value)
        if first is None and beyond is None:
            return False
        self.first = max(self.first, first or 0)
        if beyond is not None:
            self.beyond = beyond if self.beyond is None else min(self.beyond, beyond)
        return True

    def _take_time(self, one: Filter) -> None:
        value = getattr(one, "value", None)
        # A time without a zone could be any: Spark alone knows which.
        if isinstance(one, _SINCE) and isinstance(value, datetime) and value.tzinfo is not None:
            # Not before 1970: to the cluster, a negative time is an end of the log.
            since = max(0, (value - _EPOCH) // _MILLISECOND)
            self.since_ms = since if self.since_ms is None else max(self.since_ms, since)


def _bounds(one: Filter, value: int) -> tuple[int | None, int | None]:
    """Return the range of offsets that a comparison accepts: first, and beyond the last."""
    match one:
        case EqualTo() | EqualNullSafe():
            return value, value + 1
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value
        case LessThanOrEqual():
            return None, value + 1
    return None, None


def _column(one: Filter) -> str | None:
    if isinstance(one, Not):
        return _column(one.child)
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else None


def _test(one: Filter, kind: type) -> Test | None:
    """Return a filter as a test of a value, None where it is of an unknown sort."""
    if isinstance(one, Not):
        inner = _test(one.child, kind)
        return None if inner is None else lambda value: not inner(value)
    compare = _COMPARISONS.get(type(one))
    wanted = getattr(one, "value", None)
    values = wanted if isinstance(one, In) else (wanted,)
    if compare is None or not isinstance(values, tuple | list):
        return None
    if any(type(value) is not kind for value in values):
        return None
    return lambda value: compare(value, wanted)
