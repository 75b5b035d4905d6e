"""Batches of records with an id for each (`records:batch`)."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from leadline_broker.api.v3.errors import INVALID_BATCH, MALFORMED, UNPROCESSABLE, V3Error
from leadline_broker.api.v3.records.appends import Appended, Result, TopicAppender
from leadline_broker.api.v3.records.reports import (
    BatchReport,
    EntryFailure,
    EntrySuccess,
    failure_of,
    success_of,
)
from leadline_broker.api.v3.records.requests import BatchEntry, ParsedRecord, parse_entry
from leadline_common.http.json_bodies import problem_of_json

MOST_ENTRIES: Final = 10
MOST_ID_LENGTH: Final = 80


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Records to append, each by itself."""

    entries: list[BatchEntry]


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """A batch whose entries are not read yet: one that is malformed does not spoil the others."""

    entries: list[msgspec.Raw] | None = None


class _Identified(msgspec.Struct):
    """The id of an entry."""

    id: str | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope | None).decode
_decode_id = msgspec.json.Decoder(_Identified).decode


async def answer_batch(
    body: bytes, appender: TopicAppender, cluster_id: str, now_ms: int
) -> BatchReport:
    """Append the records of a batch, and return the results.

    Raises:
        V3Error: the batch itself is malformed; nothing was appended.

    """
    entries = entries_of(body)
    records = [_parsed(document, now_ms) for _, document in entries]
    results = await appender.append_all(records)
    report = BatchReport([], [])
    for (entry_id, _), record, result in zip(entries, records, results, strict=True):
        found = _result(cluster_id, appender.topic, entry_id, record, result)
        if isinstance(found, EntrySuccess):
            report.successes.append(found)
        else:
            report.failures.append(found)
    return report


def _result(
    cluster_id: str,
    topic: str,
    entry_id: str,
    record: ParsedRecord | V3Error,
    result: Result,
) -> EntrySuccess | EntryFailure:
    if isinstance(result, Appended) and isinstance(record, ParsedRecord):
        return success_of(cluster_id, topic, entry_id, record, result)
    return EntryFailure(entry_id, *failure_of(result))


def entries_of(body: bytes) -> list[tuple[str, bytes]]:
    """Return the ids and the bytes of a batch's entries.

    Raises:
        V3Error: there are none or too many, or their ids do not tell them apart.

    """
    found = _envelope(body)
    if not 1 <= len(found) <= MOST_ENTRIES:
        raise V3Error(INVALID_BATCH, f"a batch has 1 to {MOST_ENTRIES} entries, not {len(found)}")
    try:
        ids = [_decode_id(entry).id or "" for entry in found]
    except msgspec.DecodeError:
        raise V3Error(INVALID_BATCH, "an entry of a batch is an object with an id") from None
    if not all(1 <= len(one) <= MOST_ID_LENGTH for one in ids):
        raise V3Error(INVALID_BATCH, f"the id of an entry has 1 to {MOST_ID_LENGTH} characters")
    if len(Counter(ids)) < len(ids):
        raise V3Error(INVALID_BATCH, "two entries of a batch have the same id")
    return list(zip(ids, map(bytes, found), strict=True))


def _envelope(body: bytes) -> list[msgspec.Raw]:
    if not body.strip():
        raise V3Error(INVALID_BATCH, "the request has no body")
    if problem := problem_of_json(body):
        raise V3Error(MALFORMED, f"the body: {problem}")
    try:
        envelope = _decode_envelope(body)
    except msgspec.ValidationError as error:
        unknown = "unknown field" in str(error)
        raise V3Error(UNPROCESSABLE if unknown else MALFORMED, f"the body: {error}") from None
    except msgspec.DecodeError as error:
        raise V3Error(MALFORMED, f"the body is not JSON: {error}") from None
    if envelope is None:
        raise V3Error(INVALID_BATCH, "the body is null")
    return envelope.entries or []


def _parsed(document: bytes, now_ms: int) -> ParsedRecord | V3Error:
    try:
        return parse_entry(document, now_ms)
    except V3Error as error:
        return error
