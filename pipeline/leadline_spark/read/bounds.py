"""The bounds of a read: how users state them, and the offset of each partition they resolve to.

Names, precedence and refusals are those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from leadline_client.wire import TopicPartition
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options, parse_json
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndEpoch,
    check_partitions,
    parse_partition_offsets,
)


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a read; `option` is the name of the option that states it.

    The first of these counts: `timestamp` for all partitions, `timestamps` for each, `offsets` for
    each, or `everywhere`, which is EARLIEST or LATEST. Timestamps are Unix times in ms.
    """

    option: str
    everywhere: int
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    latest_where_none: bool = True

    @property
    def by_time(self) -> bool:
        """Whether the offsets must be looked up by timestamp."""
        return self.timestamp is not None or bool(self.timestamps)

    @property
    def depends_on_now(self) -> bool:
        """Whether the same bound may resolve to a later offset a little later.

        This is so for ends, and for a timestamp that no record has reached yet.
        """
        if self.by_time:
            return self.latest_where_none
        return self.everywhere == LATEST if not self.offsets else LATEST in self.offsets.values()


def start_of(options: Options, *, streaming: bool) -> Bound:
    """Return where a read starts. Raises LeadlineSparkError where Kafka's source refuses it."""
    bound = _bound(options, "starting", LATEST if streaming else EARLIEST)
    error = options.text("startingOffsetsByTimestampStrategy") == "error"
    bound = replace(bound, latest_where_none=not error)
    if not streaming and not bound.by_time:
        _refuse(bound, LATEST, "latest", "a batch read cannot start there: it would be empty")
    return bound


def end_of(options: Options) -> Bound:
    """Return where a batch read ends. Raises LeadlineSparkError where Kafka's source refuses it."""
    bound = _bound(options, "ending", LATEST)
    if not bound.by_time:
        _refuse(bound, EARLIEST, "earliest", "a batch read cannot end there: it would be empty")
    return bound


def refuse_ends(options: Options) -> None:
    """Refuse the options that end a read: a stream has no end."""
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name in options:
            message = f"{name} is not valid in a streaming query: it does not end."
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)


def resolve(
    bound: Bound, snapshot: OffsetSnapshot, fetcher: OffsetFetcher
) -> dict[TopicPartition, OffsetAndEpoch]:
    """Return an offset for each partition of the snapshot; timestamps cost one more request.

    Raises LeadlineSparkError: LEADLINE_OFFSETS_INVALID if a partition is not named,
    LEADLINE_OFFSET_NOT_FOUND if no record is as new as the start.
    """
    if bound.by_time:
        return _resolve_times(bound, snapshot, fetcher)
    if bound.offsets:
        check_partitions(bound.option, bound.offsets, snapshot.offsets)
        return {tp: _position(bound.offsets[tp], tp, snapshot) for tp in snapshot.offsets}
    return {tp: _position(bound.everywhere, tp, snapshot) for tp in snapshot.offsets}


def _resolve_times(
    bound: Bound, snapshot: OffsetSnapshot, fetcher: OffsetFetcher
) -> dict[TopicPartition, OffsetAndEpoch]:
    times = dict(bound.timestamps)
    if bound.timestamp is not None:
        times = dict.fromkeys(snapshot.offsets, bound.timestamp)
    check_partitions(bound.option, times, snapshot.offsets)
    found = fetcher.by_time(times)
    positions = {}
    for topic_partition, offset in found.items():
        if offset is None and not bound.latest_where_none:
            since = times[topic_partition]
            message = (
                f"{bound.option}: {topic_partition} has no record at or after {since} ms. To start "
                "at its end there, set startingOffsetsByTimestampStrategy to latest."
            )
            raise LeadlineSparkError("LEADLINE_OFFSET_NOT_FOUND", message)
        positions[topic_partition] = _position(
            LATEST if offset is None else offset, topic_partition, snapshot
        )
    return positions


def _position(
    offset: int, topic_partition: TopicPartition, snapshot: OffsetSnapshot
) -> OffsetAndEpoch:
    at = snapshot.offsets[topic_partition]
    resolved = {EARLIEST: at.start, LATEST: at.end}.get(offset, offset)
    return OffsetAndEpoch(resolved, at.leader.epoch)


def _bound(options: Options, which: str, default: int) -> Bound:
    everywhere, offsets = _offsets(f"{which}Offsets", options.text(f"{which}Offsets"), default)
    single, several = f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    if single in options:
        return Bound(single, default, timestamp=options.number(single))
    if several in options:
        # The cluster takes negative timestamps for ends of the log.
        times = _numbers(several, options.document(several), "time", 0, options.text(several))
        return Bound(several, default, timestamps=times)
    return Bound(f"{which}Offsets", everywhere, offsets)


def _offsets(
    option: str, text: str | None, default: int
) -> tuple[int, Mapping[TopicPartition, int]]:
    """Read `earliest`, `latest`, or JSON."""
    if text is None:
        return default, {}
    word = text.strip().lower()
    if word in {"earliest", "latest"}:
        return (EARLIEST if word == "earliest" else LATEST), {}
    try:
        document = parse_json(text)
    except ValueError as failure:
        message = f"{option} is {text!r}, which is neither earliest nor latest nor JSON: {failure}."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message) from failure
    return default, _numbers(option, document, "offset", EARLIEST, text)


def _numbers(
    option: str, document: Any, kind: str, least: int, text: str | None
) -> Mapping[TopicPartition, int]:
    """Read a number of at least `least` for each of one or more partitions."""
    numbers = parse_partition_offsets(option, document)
    low = [f"{tp}: {number}" for tp, number in numbers.items() if number < least]
    if low or not numbers:
        message = f"{option} has no such {kind}: {', '.join(low) or text}."
        raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
    return numbers


def _refuse(bound: Bound, value: int, word: str, why: str) -> None:
    named = [str(tp) for tp, offset in bound.offsets.items() if offset == value]
    if named or (not bound.offsets and bound.everywhere == value):
        where = f" for {', '.join(named)}" if named else ""
        message = f"{bound.option} is {word}{where}; {why}."
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
