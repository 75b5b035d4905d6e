"""Positions in partitions, and the JSON in which users and Spark's checkpoints write them. Pure.

The shape is that of Kafka's source, `{"orders":{"0":12,"1":9}}`. Two more keys, which cannot be
names of topics, hold what an offset alone does not say: `@ids`, because a recreated topic begins
again at offset 0, and `@epochs`, the leader epoch in which an offset was known to be committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from leadline_client.wire import TopicPartition
from leadline_spark.errors import LeadlineSparkError

EARLIEST = -2
LATEST = -1
UNKNOWN_EPOCH = -1
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_IDS = "@ids"
_EPOCHS = "@epochs"
_WHAT = "The offset of the checkpoint"
_FOREIGN = (
    "The checkpoint is damaged, or another source wrote it. Start the query with a new one, at "
    "these offsets if they are right (startingOffsets)."
)


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """The next offset to read, and the leader epoch in which everything before it was committed."""

    offset: int
    epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The position of a read in every partition, and the ids of the topics."""

    positions: Mapping[TopicPartition, OffsetAndEpoch]
    ids: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return JSON for the checkpoint, sorted because Spark compares it as text."""
        positions = self.positions.items()
        document: dict[str, Any] = nested({tp: at.offset for tp, at in positions})
        epochs = {tp: at.epoch for tp, at in positions if at.epoch != UNKNOWN_EPOCH}
        document[_EPOCHS] = nested(epochs)
        document[_IDS] = dict(sorted(self.ids.items()))
        return document

    @classmethod
    def of(cls, document: Any) -> Self:
        """Read an offset that `document` returned, with or without epochs and ids.

        Raises LeadlineSparkError LEADLINE_OFFSETS_INVALID.
        """
        offsets = parse_partition_offsets(_WHAT, document)
        epochs = parse_partition_offsets(_WHAT, document.get(_EPOCHS, {}))
        ids = document.get(_IDS, {})
        if not isinstance(ids, dict) or any(type(topic_id) is not str for topic_id in ids.values()):
            raise _malformed(_WHAT, document)
        if any(offset < 0 for offset in offsets.values()):
            raise _malformed(_WHAT, document)
        positions = {
            tp: OffsetAndEpoch(offset, epochs.get(tp, UNKNOWN_EPOCH))
            for tp, offset in offsets.items()
        }
        return cls(positions, dict(ids))

    @classmethod
    def of_checkpoint(cls, document: Any) -> Self:
        """Read the offset of a checkpoint.

        Raises LeadlineSparkError LEADLINE_OFFSETS_INVALID, also if it has no topic ids: Spark lets
        a stream go on from the checkpoint of any source, and Kafka's offsets have the same shape.
        """
        try:
            offset = cls.of(document)
        except LeadlineSparkError as failure:
            raise LeadlineSparkError(failure.code, f"{failure.message} {_FOREIGN}") from failure
        if _IDS not in document or {tp.topic for tp in offset.positions} - offset.ids.keys():
            message = f"{_WHAT} is {document!r}, without the ids of its topics. {_FOREIGN}"
            raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
        return offset


def nested(numbers: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return numbers by topic and partition, sorted, as JSON writes them: keys are text."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(numbers.items()):
        document.setdefault(topic, {})[str(partition)] = number
    return document


def parse_partition_offsets(what: str, document: Any) -> dict[TopicPartition, int]:
    """Read `{"topic":{"0":1}}`, and skip keys that begin with @, which are no topics.

    Raises LeadlineSparkError LEADLINE_OFFSETS_INVALID, whose message contains `what`.
    """
    found: dict[TopicPartition, int] = {}
    try:
        rows = [
            (topic, number, value)
            for topic, numbers in document.items()
            if not topic.startswith("@")
            for number, value in numbers.items()
        ]
    except AttributeError as failure:
        raise _malformed(what, document) from failure
    for topic, number, value in rows:
        # One way to write each: of "0" and "00", which are two keys, one would be dropped.
        if not _PARTITION.fullmatch(number) or type(value) is not int:
            raise _malformed(what, document)
        found[TopicPartition(topic, int(number))] = value
    return found


def parse_assign(document: Any) -> tuple[TopicPartition, ...]:
    """Read `{"topicA":[0,1]}`. Raises LeadlineSparkError LEADLINE_OPTION_INVALID."""
    try:
        topic_partitions = {
            TopicPartition(topic, number)
            for topic, numbers in document.items()
            for number in numbers
        }
    except (AttributeError, TypeError) as failure:
        raise _bad_assignment(document) from failure
    # A partition that is no number could be read as another one: 1.9 as 1, "12" as 1 and 2.
    if any(type(number) is not int or number < 0 for _, number in topic_partitions):
        raise _bad_assignment(document)
    return tuple(sorted(topic_partitions))


def _bad_assignment(document: Any) -> LeadlineSparkError:
    message = f'assign is {document!r}, which is not like {{"topicA":[0,1]}}.'
    return LeadlineSparkError("LEADLINE_OPTION_INVALID", message)


def check_partitions(
    what: str, named: Iterable[TopicPartition], read: Iterable[TopicPartition]
) -> None:
    """Check that offsets name exactly the partitions that are read.

    Raises LeadlineSparkError LEADLINE_OFFSETS_INVALID.
    """
    given, wanted = set(named), set(read)
    missing, beyond = sorted(wanted - given), sorted(given - wanted)
    if not missing and not beyond:
        return
    message = f"{what} must name exactly the partitions that are read."
    if missing:
        message += f" Missing: {_listed(missing)}; use -2 for earliest or -1 for latest."
    if beyond:
        message += f" Not read: {_listed(beyond)}."
    raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)


def _listed(topic_partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, topic_partitions[:10]))
    more = len(topic_partitions) - 10
    return f"{shown} and {more} more" if more > 0 else shown


def _malformed(what: str, document: Any) -> LeadlineSparkError:
    message = f'{what} is {document!r}, which is not like {{"topicA":{{"0":23,"1":-2}}}}.'
    return LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
