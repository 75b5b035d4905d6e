"""Refusals of records by serializers, in clients only."""

from __future__ import annotations

from typing import Self

from leadline_client.errors.tree import Refused
from leadline_client.wire import Record, TopicPartition


class SerializationFailed(Refused):
    """A serializer refused the key or the value of a record; nothing was sent (clients only)."""

    code = 42251


class DeserializationFailed(Refused):
    """The key or the value of a record cannot be deserialized (clients only).

    The error names the record and has it as it is stored. To leave it out, seek to `next_offset`.
    """

    code = 42252
    record: Record | None = None
    """The record as it is stored; None in an error that came over HTTP."""

    @classmethod
    def of(cls, place: TopicPartition, record: Record, part: str, reason: Exception) -> Self:
        """Return the error for the `part` ("key" or "value") of a record."""
        error = cls(
            f"the {part} of the record at {place}, offset {record.offset}, cannot be "
            f"deserialized: {type(reason).__name__}: {reason}",
            topic=place.topic,
            partition=place.partition,
            offset=record.offset,
            part=part,
        )
        error.record = record
        return error

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return str(self.details["topic"])

    @property
    def partition(self) -> int:
        """The partition of the record."""
        return int(self.details["partition"])

    @property
    def offset(self) -> int:
        """The offset of the record."""
        return int(self.details["offset"])

    @property
    def next_offset(self) -> int:
        """The offset after the record, from which to read on."""
        return self.offset + 1

    @property
    def part(self) -> str:
        """What cannot be deserialized: "key" or "value"."""
        return str(self.details["part"])
