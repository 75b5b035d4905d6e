"""What the API answers about records: a report for each, and the results of a batch."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from leadline_broker.api.v3.errors import (
    INVALID_PAYLOAD,
    UNPROCESSABLE,
    Code,
    V3Error,
    code_of,
    message_of,
)
from leadline_broker.api.v3.records.appends import Appended, Result
from leadline_broker.api.v3.records.requests import ParsedRecord, Part
from leadline_broker.api.v3.removal import rfc3339

SUCCESS: Final = 200
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class PartReport(msgspec.Struct):
    """The type of a key or value, and the number of its bytes."""

    type: str
    size: int


class ProduceReport(msgspec.Struct, omit_defaults=True):
    """Where a record is, with the error code 200; or an error code and its message."""

    error_code: Int32
    message: str | None = None
    cluster_id: str | None = None
    topic_name: str | None = None
    partition_id: Int32 | None = None
    offset: int | None = None
    timestamp: str | None = None
    key: PartReport | None = None
    value: PartReport | None = None


class EntrySuccess(msgspec.Struct, omit_defaults=True):
    """Where a record of a batch is."""

    id: str
    cluster_id: str
    topic_name: str
    partition_id: Int32
    offset: int
    timestamp: str
    key: PartReport | None = None
    value: PartReport | None = None


class EntryFailure(msgspec.Struct):
    """Why a record of a batch was not appended, or may not have been."""

    id: str
    error_code: Int32
    message: str


class BatchReport(msgspec.Struct):
    """The results of a batch, each in the order of the request."""

    successes: list[EntrySuccess]
    failures: list[EntryFailure]


def report_of(
    cluster_id: str, topic: str, record: ParsedRecord | V3Error, result: Result
) -> ProduceReport:
    """Return the report of a record in a stream."""
    if not isinstance(result, Appended) or isinstance(record, V3Error):
        code, message = failure_of(result)
        return ProduceReport(code, message)
    return ProduceReport(
        SUCCESS,
        None,
        cluster_id,
        topic,
        result.partition,
        result.offset,
        rfc3339(record.timestamp),
        _part(record.key_part),
        _part(record.value_part),
    )


def failure_of(result: Result) -> tuple[int, str]:
    """Return the code and the message that a report has for an error."""
    if isinstance(result, V3Error):
        return _reported(result.code, result.message)
    if isinstance(result, Appended):
        raise TypeError("a record that was appended has not failed")
    return _reported(code_of(result), message_of(result))


def _reported(code: Code, message: str) -> tuple[int, str]:
    if code == INVALID_PAYLOAD:
        # Within reports the code is that of HTTP, and the finer one is in the text.
        return UNPROCESSABLE.code, f"{code.code}: {message}"
    return code.code, message


def success_of(
    cluster_id: str, topic: str, entry_id: str, record: ParsedRecord, done: Appended
) -> EntrySuccess:
    """Return the result of a record of a batch that was appended."""
    return EntrySuccess(
        entry_id,
        cluster_id,
        topic,
        done.partition,
        done.offset,
        rfc3339(record.timestamp),
        _part(record.key_part),
        _part(record.value_part),
    )


def _part(part: Part | None) -> PartReport | None:
    return None if part is None else PartReport(part.type, len(part.data or b""))
