"""From rows of Spark to the records of partitions: the columns of Spark's Kafka sink.

`value` is required; `key`, `headers`, `topic` and `partition` are optional. Text is encoded as
UTF-8, and other columns are ignored, as in the Kafka sink. The option `topic` overrides the column.
The key determines the partition of a record without one. Records without a key go to one partition
until a batch is full. The same input in the same order yields the same records for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.columnar.encode import Records
from leadline_client.columnar.murmur2 import partitions_of
from leadline_client.columnar.partitioning import StickyPartitions, by_partition
from leadline_client.wire import TopicPartition
from leadline_spark.codec.columns import HEADERS
from leadline_spark.errors import LeadlineSparkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


def check_schema(schema: StructType, topic: str | None, *, keep_timestamps: bool = False) -> None:
    """Check that a DataFrame can be written, before any task runs.

    A column `topic` is not read if the option is given, and `timestamp` only to be kept.

    Raises LeadlineSparkError: LEADLINE_SCHEMA_INVALID, LEADLINE_OPTION_MISSING.
    """
    given = {field.name: field.dataType.simpleString() for field in schema.fields}
    unread = {"topic": topic is not None, "timestamp": not keep_timestamps}
    for name, allowed in _TYPES.items():
        if unread.get(name):
            continue
        count = schema.names.count(name)
        if count > 1:
            message = f"There are {count} columns {name}: leave out or rename all but one."
            raise LeadlineSparkError("LEADLINE_SCHEMA_INVALID", message)
        if name in given and given[name] not in allowed:
            message = f"The column {name} is {given[name]}; it has to be {' or '.join(allowed)}."
            raise LeadlineSparkError("LEADLINE_SCHEMA_INVALID", message)
    if "value" not in given:
        message = f"A column value (string or binary) is required; there are: {', '.join(given)}."
        raise LeadlineSparkError("LEADLINE_SCHEMA_INVALID", message)
    if topic is None and "topic" not in given:
        message = "Say where to write: by the option topic, or by a column topic (string)."
        raise LeadlineSparkError("LEADLINE_OPTION_MISSING", message)


@dataclass(slots=True)
class RowPartitioner:
    """Assigns the rows of one task to partitions.

    `partition_count` returns the number of a topic's partitions. `first`, modulo that number, is
    the first partition of records without a key, so that tasks start at different ones.
    """

    partition_count: Callable[[str], int]
    _: KW_ONLY
    topic: str | None
    keep_timestamps: bool
    batch_bytes: int
    first: int
    _sticky: dict[str, StickyPartitions] = field(default_factory=dict, init=False)

    def partition(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Records]]:
        """Yield the rows by partition, in order within each partition.

        Raises LeadlineSparkError: LEADLINE_ROW_INVALID, and what `partition_count` raises.
        """
        if rows.num_rows == 0:
            return
        if self.topic is not None:
            yield from self._of_topic(self.topic, rows)
            return
        topics = rows["topic"]
        for topic in pc.unique(topics).to_pylist():
            if topic is None:
                message = "A row has no topic; set the option topic, or fill the column."
                raise LeadlineSparkError("LEADLINE_ROW_INVALID", message)
            yield from self._of_topic(topic, rows.filter(pc.equal(topics, topic)))

    def _of_topic(
        self, topic: str, rows: pa.RecordBatch
    ) -> Iterator[tuple[TopicPartition, Records]]:
        records = self._records(rows)
        numbers = self._partitions(topic, rows, records)
        for partition, part in by_partition(records, numbers):
            yield TopicPartition(topic, partition), part

    def _records(self, rows: pa.RecordBatch) -> Records:
        names = rows.schema.names
        key = (
            rows["key"].cast(pa.binary())
            if "key" in names
            else pa.nulls(rows.num_rows, pa.binary())
        )
        headers = None
        if "headers" in names and rows["headers"].null_count < rows.num_rows:
            headers = rows["headers"].cast(HEADERS)
            _check_headers(headers)
        return Records(key, rows["value"].cast(pa.binary()), headers, self._times(rows))

    def _times(self, rows: pa.RecordBatch) -> pa.Int64Array | None:
        """Return the times of the rows, or None if their records get the time of writing."""
        if not self.keep_timestamps or "timestamp" not in rows.schema.names:
            return None
        times = rows["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        earliest = pc.min(times).as_py()
        if earliest is not None and earliest < 0:
            message = f"A row has the time {earliest} ms, and records have none before 1970."
            raise LeadlineSparkError("LEADLINE_ROW_INVALID", message)
        return times

    def _partitions(self, topic: str, rows: pa.RecordBatch, records: Records) -> pa.Int32Array:
        count = self.partition_count(topic)
        numbers = partitions_of(records.key, count)
        if "partition" in rows.schema.names:
            asked = rows["partition"]
            self._check(topic, asked, count)
            numbers = pc.coalesce(asked, numbers)
        sticky = self._sticky.setdefault(topic, StickyPartitions(self.first, self.batch_bytes))
        return sticky.assign(records, numbers, count)

    def _check(self, topic: str, asked: pa.Int32Array, count: int) -> None:
        found = pc.min_max(asked).as_py()
        if found["min"] is not None and (found["min"] < 0 or found["max"] >= count):
            wrong = found["min"] if found["min"] < 0 else found["max"]
            message = f"A row goes to partition {wrong}, but {topic} has {count} partitions."
            raise LeadlineSparkError("LEADLINE_ROW_INVALID", message)


def _check_headers(headers: pa.ListArray) -> None:
    """Refuse headers that are null or have no name: they would be written with an empty name."""
    pairs = headers.flatten()
    if pairs.null_count or pairs.field("key").null_count:
        message = "A row has a header that is null, or whose key is null; a header has a name."
        raise LeadlineSparkError("LEADLINE_ROW_INVALID", message)
