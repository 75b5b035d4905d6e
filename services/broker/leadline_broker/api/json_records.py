"""Records as JSON, with keys and values as `string`, `json` or `base64`."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec

from leadline_broker.api.parameters import INT64_MAX
from leadline_client import batches
from leadline_client.accumulator import MAX_SEQUENCE
from leadline_client.errors import InvalidRequest
from leadline_client.wire import Record, RecordFormat
from leadline_common.http.errors import invalid_field
from leadline_common.http.json_bodies import UnacceptableBody, decode_body

FORMATS = ("string", "json", "base64")

MOST_RECORDS = 100_000
"""The records of one JSON request."""
MOST_HEADERS = 1_000
"""The headers of one record as JSON."""

# The ranges of the fields of a batch header.
Int64 = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, le=batches.LATEST_TIMESTAMP)]
ProducerEpoch = Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]
Sequence = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]


class JsonHeader(msgspec.Struct, forbid_unknown_fields=True):
    """One header of a record; names may repeat."""

    name: str
    value: str | None = None


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One record to append. A null value is a tombstone; `timestamp` in Unix ms.

    Key and value are in the format of the request; header values are text, or base64 if the
    format is `base64`.
    """

    value: Any
    key: Any = None
    headers: (
        Annotated[list[JsonHeader], msgspec.Meta(max_length=MOST_HEADERS)]
        | Annotated[dict[str, str], msgspec.Meta(max_length=MOST_HEADERS)]
    ) = []
    timestamp: Timestamp | None = None


class ProducerStamp(msgspec.Struct, forbid_unknown_fields=True):
    """The identity of an idempotent producer; `sequence` is that of the first record."""

    id: Int64
    epoch: ProducerEpoch
    sequence: Sequence


class ProduceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Records to append as one batch, all or none."""

    records: Annotated[list[JsonRecord], msgspec.Meta(max_length=MOST_RECORDS)]
    format: Literal["string", "json", "base64"] = "string"
    producer: ProducerStamp | None = None


@dataclass(frozen=True, slots=True)
class EncodableRecord:
    """A record as bytes."""

    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class _Records(Protocol):
    @property
    def records(self) -> Collection[JsonRecord]: ...


_Body = TypeVar("_Body")
_RecordsBody = TypeVar("_RecordsBody", bound=_Records)


def _as_sent(number: str) -> msgspec.Raw:
    """Return a decimal number with its digits.

    One beyond the range of a double is refused: many parsers would refuse a whole answer because of
    one record that has it.
    """
    if math.isinf(float(number)):
        raise msgspec.ValidationError("Number out of range")
    return msgspec.Raw(number)


def records_decoder(kind: type[_Body]) -> msgspec.json.Decoder[_Body]:
    """Return what decodes a JSON body whose keys and values keep the digits of their numbers."""
    return msgspec.json.Decoder(kind, float_hook=_as_sent)


_decoder = records_decoder(ProduceBody)
_decode_stored = msgspec.json.Decoder(float_hook=_as_sent).decode


def parse_body(body: bytes | bytearray) -> ProduceBody:
    """Decode the JSON body of a produce.

    Raises:
        InvalidRequest: the body is invalid; the error names the field.

    """
    return parse_records(_decoder.decode, body)


def parse_records(decode: Callable[[bytes], _RecordsBody], body: bytes | bytearray) -> _RecordsBody:
    """Decode a JSON body with at least one record.

    Raises:
        InvalidRequest: the body is invalid; the error names the field.

    """
    parsed = parse_json(decode, body)
    if not parsed.records:
        raise invalid_field("body.records", "must hold at least one record")
    return parsed


def parse_json(decode: Callable[[bytes], _Body], body: bytes | bytearray) -> _Body:
    """Decode a JSON body.

    Raises:
        InvalidRequest: the body is invalid; the error names the field.

    """
    try:
        return decode_body(decode, bytes(body))
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise invalid_field(f"body{path.rstrip('`')}", message) from None
    except msgspec.DecodeError as error:
        raise invalid_field("body", f"not JSON: {error}") from None
    except UnacceptableBody as error:
        raise invalid_field("body", str(error)) from None


def encode_batch(body: ProduceBody, now_ms: int) -> bytes:
    """Build the batch of a JSON produce; records without a timestamp get `now_ms`.

    Raises:
        InvalidRequest: a key or value does not match the format.

    """
    stamp = body.producer or ProducerStamp(batches.NO_PRODUCER_ID, -1, batches.NO_SEQUENCE)
    return batches.encode(
        encodable_records(body.records, body.format),
        now_ms=now_ms,
        producer_id=stamp.id,
        producer_epoch=stamp.epoch,
        base_sequence=stamp.sequence,
    )


def encodable_records(records: Collection[JsonRecord], form: RecordFormat) -> list[EncodableRecord]:
    """Return the bytes of the records of a request.

    Raises:
        InvalidRequest: a key or value does not match the format.

    """
    return [_encodable(record, form, index) for index, record in enumerate(records)]


def _encodable(record: JsonRecord, form: RecordFormat, index: int) -> EncodableRecord:
    field = f"body.records[{index}]"
    headers = record.headers
    pairs = (
        list(headers.items())
        if isinstance(headers, dict)
        else [(header.name, header.value) for header in headers]
    )
    header_form: RecordFormat = "base64" if form == "base64" else "string"
    return EncodableRecord(
        record.timestamp,
        _to_bytes(record.key, form, f"{field}.key"),
        _to_bytes(record.value, form, f"{field}.value"),
        tuple((name, _to_bytes(value, header_form, f"{field}.headers")) for name, value in pairs),
    )


def _to_bytes(value: Any, form: RecordFormat, field: str) -> bytes | None:
    if value is None:
        return None
    if form == "json":
        return msgspec.json.encode(value)
    if not isinstance(value, str):
        raise invalid_field(field, f"must be text or null in the format {form}")
    if form == "string":
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:  # Also that of a text beyond ASCII, which is no `binascii.Error`.
        raise invalid_field(field, "is not base64") from None


def render(record: Record, form: RecordFormat) -> dict[str, Any]:
    """Return a stored record for a JSON response.

    Raises:
        InvalidRequest: its bytes are not valid in the format; `base64` accepts any bytes.

    """
    header_form: RecordFormat = "base64" if form == "base64" else "string"
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _from_bytes(record.key, form, record.offset),
        "value": _from_bytes(record.value, form, record.offset),
        "headers": [
            {"name": name, "value": _from_bytes(value, header_form, record.offset)}
            for name, value in record.headers
        ],
    }


def _from_bytes(data: bytes | None, form: RecordFormat, offset: int) -> Any:
    if data is None:
        return None
    if form == "base64":
        return base64.b64encode(data).decode()
    try:
        return data.decode() if form == "string" else _decode_stored(data)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        raise InvalidRequest(
            f"the record at offset {offset} is not valid {form}; use format=base64",
            offset=offset,
            fields=[{"field": "query.format", "message": "use base64 for these records"}],
        ) from None
