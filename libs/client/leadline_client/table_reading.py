"""Topics as Arrow tables and pandas data frames (extras `arrow` and `pandas`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from leadline_client.client import Client
from leadline_client.errors import InvalidRequest, OffsetOutOfRange, UnreadableBatch
from leadline_client.extras import MissingExtra, installed
from leadline_client.read_ahead import one_ahead
from leadline_client.reading import FetchPosition, ReadLimits, Start, StoredBatches
from leadline_client.wire import LogPosition, PartitionOffsets, TopicPartition

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingExtra("arrow", "Arrow tables") from error

# They import pyarrow, too.
from leadline_client.columnar.decode import decode
from leadline_client.columnar.layout import Layout

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_LIMITS: Final = ReadLimits(max_bytes=8 << 20)
_MOST_ROWS: Final = 1 << 16
_MOST_BYTES: Final = 8 << 20
"""The largest Arrow batch. Each one costs a hundred calls of kernels, whatever its size."""

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)
"""The columns of a table of records, with the names that Spark's sources give them."""


def read_batches(
    client: Client,
    topic: str,
    partitions: Sequence[int] | None = None,
    *,
    start: Start | Mapping[int, Start] = "earliest",
    end: Mapping[int, int] | None = None,
    columns: Sequence[str] | None = None,
    limits: ReadLimits = _LIMITS,
) -> pa.RecordBatchReader:
    """Return a reader of the records of a topic, which fetches as it is iterated.

    `partitions`: all by default; they come one after another, each in the order of its offsets.
    `start`: where to begin, for all partitions or by partition. `end`: the offsets before which to
    stop; by default the high watermarks at the time of the call. `columns`: names in `SCHEMA`, in
    the wanted order. A thread fetches ahead, once (`limits.max_bytes`, compressed), while the
    records of a fetch are used; batches have at most 65,536 rows. Nobody else uses the client
    until the reader has ended or is gone.

    Raises:
        UnknownTopic, UnknownPartition: there is no such topic or partition.
        InvalidRequest: there is no such column, or `start` or `end` names another partition.
        OffsetOutOfRange: a `start` is beyond the end of the log, as where the topic was recreated,
            or an `end` is beyond the high watermark. While iterating, also the errors of
            `FetchPosition.read`; and an unclean election has cut off records that were readable at
            the time of the call, so that others may have their offsets.

    """
    fields = list(SCHEMA.names if columns is None else columns)
    if unknown := set(fields).difference(SCHEMA.names):
        raise InvalidRequest(f"records have no columns {sorted(unknown)}: {SCHEMA.names}")
    schema = pa.schema([SCHEMA.field(name) for name in fields])
    described = client.describe(topic)
    wanted = partitions
    if wanted is None:
        wanted = [row.partition for row in described.partitions]
    for given in (start, end):
        if isinstance(given, Mapping) and (other := set(given).difference(wanted)):
            raise InvalidRequest(f"partitions {sorted(other)} have a start or an end but no reader")
    starts = {number: _start(start, number) for number in wanted}
    ends = {
        number: _end(client, TopicPartition(topic, number), begin, end or {})
        for number, begin in starts.items()
    }
    parts = [
        (FetchPosition(client.core, topic, number, starts[number]), before)
        for number, before in ends.items()
    ]
    for position, _ in parts:
        position.expect_topic(described.topic_id)  # The ends are offsets of this topic.
    fetched = (
        (stored, _layout(schema, position), before.offset)
        for position, before in parts
        for stored in _stored(client, position, before, limits)
    )
    return pa.RecordBatchReader.from_batches(schema, _decoded(fetched))


def read_table(client: Client, topic: str, **options: Any) -> pa.Table:
    """Return the records of a topic as one Arrow table; `options` are those of `read_batches`."""
    return read_batches(client, topic, **options).read_all()


def read_pandas(client: Client, topic: str, **options: Any) -> Any:
    """Return the records of a topic as a pandas DataFrame (extra `pandas`).

    `options` are those of `read_batches`. Keys and values are bytes; `timestamp` is in UTC.

    Raises:
        MissingExtra: pandas is not installed.

    """
    if not installed("pandas"):
        raise MissingExtra("pandas", "data frames")
    return read_table(client, topic, **options).to_pandas()


def _start(start: Start | Mapping[int, Start], partition: int) -> Start:
    return start.get(partition, "earliest") if isinstance(start, Mapping) else start


@dataclass(frozen=True, slots=True)
class _End:
    """The offset before which to stop, and the offsets of the partition when that was chosen."""

    offset: int
    found: PartitionOffsets

    def check(self, client: Client, place: TopicPartition) -> None:
        """Raise OffsetOutOfRange if the leader's log lacks some of what was readable up to the end.

        An epoch and an offset name one record for ever, and everything before it (KIP-320). A log
        without the last epoch may have other records at any offset of it.
        """
        last = self.found.last_epoch
        if last is None:
            return
        kept = client.run(client.core.epoch_end(*place, last))
        if kept.epoch == last and kept.end_offset >= self.offset:
            return
        raise OffsetOutOfRange(
            f"an unclean election has cut off records of {place} that were readable: they ended at"
            f" {self.found.high_watermark} in epoch {last}, and the leader of epoch"
            f" {kept.leader_epoch} has epoch {kept.epoch} up to {kept.end_offset}; begin again"
        )


def _end(client: Client, place: TopicPartition, start: Start, ends: Mapping[int, int]) -> _End:
    """Return where to stop. Raises OffsetOutOfRange, also for the start."""
    found = client.offsets(*place)
    begin = start.offset if isinstance(start, LogPosition) else start
    # Up to its end, because a new leader may learn late that what somebody has read is committed.
    if isinstance(begin, int) and begin > found.log_end_offset:
        raise OffsetOutOfRange(f"{place} ends at {found.log_end_offset}, before offset {begin}")
    wanted = ends.get(place.partition, found.high_watermark)
    if wanted > found.high_watermark:
        raise OffsetOutOfRange(f"{place} ends at {found.high_watermark}, before offset {wanted}")
    return _End(wanted, found)


def _stored(
    client: Client, position: FetchPosition, end: _End, limits: ReadLimits
) -> Iterator[StoredBatches]:
    """Yield what one partition has before `end`, fetch by fetch.

    An unclean election may cut off what is between the position and the end. So a leader of a later
    epoch is asked whether it has that, before its records are used. It only takes a moment until it
    shows what is committed.
    """
    place = TopicPartition(position.topic, position.partition)
    limit_s, waited_s = client.core.policy.timeout_s, 0.0
    checked = end.found.leader_epoch
    while (begin := client.run(position.locate())) < end.offset:
        if waited_s >= limit_s:
            raise OffsetOutOfRange(
                f"{place} should have records up to {end.offset}, and had none at {begin} for"
                f" {limit_s} s"
            )
        asked_s = time.monotonic()  # The time in which nobody asks for more does not count.
        stored = client.run(position.read_stored(limits))
        if position.leader_epoch > checked:
            end.check(client, place)
            checked = position.leader_epoch
        waited_s = 0.0 if position.offset > begin else waited_s + time.monotonic() - asked_s
        yield stored


def _layout(schema: pa.Schema, position: FetchPosition) -> Layout:
    return Layout(
        schema, position.topic, position.partition, most_rows=_MOST_ROWS, most_bytes=_MOST_BYTES
    )


def _decoded(fetched: Iterator[tuple[StoredBatches, Layout, int]]) -> Iterator[pa.RecordBatch]:
    """Yield the records of each fetch, while the next one is made."""
    for stored, layout, end in one_ahead(fetched):
        try:
            yield from decode(stored.batches, stored.start, end, layout)
        except UnreadableBatch as error:
            raise error.within(layout.topic, layout.partition) from error
