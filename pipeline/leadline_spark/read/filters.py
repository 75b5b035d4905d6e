"""Filter pushdown: a query's filters on topic, partition, offset and timestamp.

Filters on topic, partition and offset are applied exactly. A filter on timestamp only moves the
start to the first record that is as new, and Spark still applies it to each row. These columns are
never null.
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
    """What pushed filters accept: offsets [`first`, `beyond`) of partitions that pass all tests.

    Nothing before the timestamp `since_ms` is wanted.
    """

    tests: list[tuple[str, Test]] = field(default_factory=list)
    first: int = 0
    beyond: int | None = None
    since_ms: int | None = None

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take the filters that can be pushed down; return those that Spark must still apply."""
        return [filter_ for filter_ in filters if not self._take(filter_)]

    def wants(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition passes all tests."""
        return all(test(getattr(topic_partition, column)) for column, test in self.tests)

    def of(self, ranges: Sequence[Range]) -> list[Range]:
        """Return what the filters leave of these ranges."""
        return [self._cut(one) for one in ranges if self.wants(one.topic_partition)]

    def _cut(self, whole: Range) -> Range:
        start = min(max(whole.start, self.first), whole.end)
        end = whole.end if self.beyond is None else max(start, min(whole.end, self.beyond))
        return replace(whole, start=start, end=end)

    def _take(self, filter_: Filter) -> bool:
        column = _column(filter_)
        if isinstance(filter_, IsNotNull):
            return column in _COLUMNS
        if column == "offset":
            return self._take_offset(filter_)
        if column == "timestamp":
            self._take_time(filter_)
            return False
        test = _test(filter_, _TYPES[column]) if column in _TYPES else None
        if test is not None and column is not None:
            self.tests.append((column, test))
        return test is not None

    def _take_offset(self, filter_: Filter) -> bool:
        value = getattr(filter_, "value", None)
        if type(value) is not int:
            return False
        first, beyond = _bounds(filter_, value)
        if first is None and beyond is None:
            return False
        self.first = max(self.first, first or 0)
        if beyond is not None:
            self.beyond = beyond if self.beyond is None else min(self.beyond, beyond)
        return True

    def _take_time(self, filter_: Filter) -> None:
        value = getattr(filter_, "value", None)
        # Only Spark knows the zone of a time without one.
        if isinstance(filter_, _SINCE) and isinstance(value, datetime) and value.tzinfo is not None:
            # The cluster takes a negative timestamp for an end of the log.
            since = max(0, (value - _EPOCH) // _MILLISECOND)
            self.since_ms = since if self.since_ms is None else max(self.since_ms, since)


def _bounds(filter_: Filter, value: int) -> tuple[int | None, int | None]:
    """Return the first offset that a comparison accepts, and the one after the last."""
    match filter_:
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


def _column(filter_: Filter) -> str | None:
    if isinstance(filter_, Not):
        return _column(filter_.child)
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    return path[0] if len(path) == 1 else None


def _test(filter_: Filter, kind: type) -> Test | None:
    """Return a filter as a test of a value, None for an unknown kind of filter."""
    if isinstance(filter_, Not):
        inner = _test(filter_.child, kind)
        return None if inner is None else lambda value: not inner(value)
    compare = _COMPARISONS.get(type(filter_))
    wanted = getattr(filter_, "value", None)
    values = wanted if isinstance(filter_, In) else (wanted,)
    if compare is None or not isinstance(values, tuple | list):
        return None
    if any(type(value) is not kind for value in values):
        return None
    return lambda value: compare(value, wanted)
