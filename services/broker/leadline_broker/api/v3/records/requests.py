"""What a produce request says of a record, and the record that it means."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from leadline_broker.api.v3.errors import INVALID_PAYLOAD, MALFORMED, V3Error
from leadline_common.http.json_bodies import UnacceptableBody, decode_body, problem_of_json

MOST_HEADERS: Final = 1_000
_INT32: Final = 2**31
_SCHEMA_FIELDS: Final = (
    "subject",
    "subject_name_strategy",
    "schema_id",
    "schema_version",
    "schema",
)
_SCHEMA_VERSIONS: Final = ("schema_id", "schema_version", "schema")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LATEST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
"""The last time that RFC 3339 can write in UTC."""

Int32 = Annotated[int, msgspec.Meta(ge=-_INT32, le=_INT32 - 1)]


class ProduceHeader(msgspec.Struct, forbid_unknown_fields=True):
    """A header of a record; the value is base64. Names may repeat."""

    name: str
    value: str | None = None


class ProduceData(msgspec.Struct, forbid_unknown_fields=True):
    """A key or a value: base64 (`BINARY`), any JSON (`JSON`) or text (`STRING`).

    The members about schemas belong to types that need a schema registry, which Leadline has not.
    """

    type: str | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    subject: str | None = None
    subject_name_strategy: str | None = None
    schema_id: Int32 | None = None
    schema_version: Int32 | None = None
    schema: str | None = None


class ProduceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A record to append; without `partition_id` its key decides. The time is RFC 3339."""

    partition_id: Int32 | None = None
    headers: Annotated[list[ProduceHeader], msgspec.Meta(max_length=MOST_HEADERS)] | None = None
    key: ProduceData | None = None
    value: ProduceData | None = None
    timestamp: str | None = None


class BatchEntry(ProduceRequest, forbid_unknown_fields=True):
    """A record of a batch; `id` tells the results apart."""

    id: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A key or a value of a record: its type, and its bytes, None for null."""

    type: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """A record to append, as the codec takes it, with what its report repeats."""

    partition: int | None
    timestamp: int
    key_part: Part | None
    value_part: Part | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def key(self) -> bytes | None:
        """The bytes of the key."""
        return self.key_part.data if self.key_part else None

    @property
    def value(self) -> bytes | None:
        """The bytes of the value; None is a tombstone."""
        return self.value_part.data if self.value_part else None

    @property
    def size(self) -> int:
        """About how many bytes the record takes."""
        texts = (part for _, part in self.headers)
        return sum(len(one or b"") + 8 for one in (self.key, self.value, *texts))


_decode_request = msgspec.json.Decoder(ProduceRequest).decode
_decode_entry = msgspec.json.Decoder(BatchEntry).decode
_decode_text = msgspec.json.Decoder(str | None).decode


def parse_record(document: bytes, now_ms: int) -> ParsedRecord:
    """Return the record that a request describes; one without a time gets `now_ms`.

    Raises:
        V3Error: the request is malformed, or needs a schema registry.

    """
    return record_of(_decoded(_decode_request, document), now_ms)


def parse_entry(document: bytes, now_ms: int) -> ParsedRecord:
    """Return the record that an entry of a batch describes, like `parse_record`."""
    return record_of(_decoded(_decode_entry, document), now_ms)


def _decoded(decode: Callable[[bytes], ProduceRequest], document: bytes) -> ProduceRequest:
    try:
        if problem := problem_of_json(document):  # also of members that are read later
            raise V3Error(MALFORMED, f"the record: {problem}")
        return decode_body(decode, document)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        raise V3Error(MALFORMED, f"{path.rstrip('`') or 'the record'}: {message}") from None
    except (msgspec.DecodeError, UnacceptableBody) as error:
        raise V3Error(MALFORMED, f"the record is not JSON: {error}") from None


def record_of(request: ProduceRequest, now_ms: int) -> ParsedRecord:
    """Return the record that a request describes.

    Raises:
        V3Error: a member is malformed, or needs a schema registry.

    """
    return ParsedRecord(
        request.partition_id,
        now_ms if request.timestamp is None else _time_of(request.timestamp),
        _part("key", request.key),
        _part("value", request.value),
        tuple((one.name, _header_value(one)) for one in request.headers or ()),
    )


def _time_of(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise V3Error(MALFORMED, "timestamp: must be RFC 3339 with an offset")
    time_ms = (moment - _EPOCH) // _MILLISECOND
    if not 0 <= time_ms <= _LATEST_MS:
        # A later one, which an offset can name, could be appended, but not be reported.
        raise V3Error(MALFORMED, "timestamp: must be from 1970 to 9999")
    return time_ms


def _header_value(header: ProduceHeader) -> bytes | None:
    return None if header.value is None else _from_base64("headers", header.value)


def _from_base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise V3Error(MALFORMED, f"{name} is not base64") from None


def _part(name: str, given: ProduceData | None) -> Part | None:
    if given is None:
        return None
    _check_type(name, given)
    kind = str(given.type)
    if given.data is msgspec.UNSET or bytes(given.data).strip() == b"null":
        return Part(kind, None)
    return Part(kind, _bytes_of(name, kind, bytes(given.data)))


def _check_type(name: str, given: ProduceData) -> None:
    """Refuse what needs a schema registry, and what contradicts itself."""
    stated = [field for field in _SCHEMA_FIELDS if getattr(given, field) is not None]
    if given.subject is not None and given.subject_name_strategy is not None:
        raise V3Error(MALFORMED, f"{name}: subject and subject_name_strategy exclude each other")
    if sum(field in stated for field in _SCHEMA_VERSIONS) > 1:
        message = f"{name}: only one of {', '.join(_SCHEMA_VERSIONS)} can be given"
        raise V3Error(MALFORMED, message)
    if given.type not in ("BINARY", "JSON", "STRING"):
        message = f"{name}: BINARY, JSON and STRING are the types without a schema registry"
        raise V3Error(INVALID_PAYLOAD, message)
    if stated:
        raise V3Error(MALFORMED, f"{name}: the type {given.type} has no {stated[0]}")


def _bytes_of(name: str, kind: str, raw: bytes) -> bytes:
    if kind == "JSON":
        return _compact(raw)
    text = _text_of(name, kind, raw)
    return text.encode() if kind == "STRING" else _from_base64(name, text)


def _compact(raw: bytes) -> bytes:
    """Return JSON without blanks; numbers and escaped characters stay as they are written."""
    return bytes(msgspec.json.format(raw, indent=-1))


def _text_of(name: str, kind: str, raw: bytes) -> str:
    try:
        text: Any = _decode_text(raw)
    except msgspec.DecodeError:
        text = None
    if not isinstance(text, str):
        raise V3Error(MALFORMED, f"{name}: the data of the type {kind} must be text or null")
    return text
