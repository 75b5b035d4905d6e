"""The JSON of fetched records, as much of it as fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from leadline_broker.api.json_records import render
from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_client import batches
from leadline_client.batch_header import parse_headers
from leadline_client.errors import UnreadableBatch
from leadline_client.wire import RecordFormat


@dataclass(frozen=True, slots=True)
class JsonShape:
    """The format of keys and values, and the most records and bytes of records in a response."""

    form: RecordFormat
    max_records: int
    max_bytes: int


def answer_json(data: FetchedData, offset: int, shape: JsonShape) -> bytes:
    """Return the body of a response with the records from `offset` on that fit, at least one.

    Raises:
        UnreadableBatch: the first batch cannot be decoded. Records before such a batch are
            returned, so that a reader gets this error for its next request.
        InvalidRequest: a record is not valid in the format.

    """
    shown, next_offset = rendered_records(data, offset, shape)
    return msgspec.json.encode(
        {
            "records": shown,
            "high_watermark": data.high_watermark,
            "log_start_offset": data.log_start_offset,
            "leader_epoch": data.leader_epoch,
            "next_offset": next_offset,
            "last_epoch": epoch_before(data, next_offset),
        }
    )


def rendered_records(
    data: FetchedData, offset: int, shape: JsonShape, also: Mapping[str, object] | None = None
) -> tuple[list[msgspec.Raw], int]:
    """Return the JSON of the records from `offset` on that fit, and where to go on.

    Each record has the members of `also`, too.

    Raises:
        UnreadableBatch, InvalidRequest: see `answer_json`.

    """
    shown, next_offset = _rendered(data, offset, shape, also or {})
    return shown, max(next_offset, offset)


def _rendered(
    data: FetchedData, offset: int, shape: JsonShape, also: Mapping[str, object]
) -> tuple[list[msgspec.Raw], int]:
    shown: list[msgspec.Raw] = []
    size = 0
    try:
        for record in batches.decode(data.records, data.decompressed_bytes):
            if record.offset < offset:
                continue
            if len(shown) == shape.max_records:
                return shown, record.offset
            rendered = msgspec.json.encode({**also, **render(record, shape.form)})
            size += len(rendered)
            if shown and size > shape.max_bytes:
                return shown, record.offset
            shown.append(msgspec.Raw(rendered))
    except UnreadableBatch as error:
        if not shown:
            raise
        return shown, error.offset
    return shown, data.next_offset


def epoch_before(data: FetchedData, offset: int) -> int | None:
    """Return the leader epoch of the record before `offset`, which may be within a batch."""
    for header in parse_headers(data.records):
        if header.base_offset < offset <= header.next_offset:
            return header.leader_epoch
    return data.last_epoch
