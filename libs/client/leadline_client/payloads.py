"""Encoding of request bodies and decoding of response bodies. Pure."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from leadline_client.errors import ConnectionLost, LeadlineError, error_from_body
from leadline_client.named_tuples import maker_of
from leadline_client.transport import Response
from leadline_client.wire import (
    EpochEnd,
    FetchResult,
    NewTopic,
    PartitionOffsets,
    ProduceResult,
    Record,
)

Answer = TypeVar("Answer")
T = TypeVar("T")


class OutgoingRecord(NamedTuple):
    """A record to produce; without a timestamp (Unix ms) it gets the current time."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


outgoing_of: Final = maker_of(OutgoingRecord)


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The producer id and epoch in the batches of an idempotent producer."""

    producer_id: int
    producer_epoch: int


class EncodedBatch(NamedTuple):
    """One batch of format v2 with so many records, without a producer id.

    `divide` encodes the two halves of its records, should it be too large; without it, or with one
    record, that is refused.
    """

    data: bytes
    record_count: int
    divide: Callable[[], tuple[EncodedBatch, EncodedBatch]] | None = None


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole v2 batches as stored, and the offsets and leader epochs of the response.

    `last_epoch` is that of the record before `next_offset`. None: the response does not say.
    """

    batches: bytes
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    next_offset: int
    last_epoch: int | None = None
    topic_id: str | None = None


def record_json(record: OutgoingRecord) -> dict[str, Any]:
    """Return a record for the produce route, in base64 format."""
    body: dict[str, Any] = {"value": _encoded(record.value)}
    if record.key is not None:
        body["key"] = _encoded(record.key)
    if record.headers:
        body["headers"] = [
            {"name": name, "value": _encoded(value)} for name, value in record.headers
        ]
    if record.timestamp is not None:
        body["timestamp"] = record.timestamp
    return body


def new_topic_json(topic: NewTopic, *, dry_run: bool) -> dict[str, Any]:
    """Return the body of `POST /v1/topics`; options that are None are left out."""
    body: dict[str, Any] = {"name": topic.name}
    if topic.partitions is not None:
        body["partitions"] = topic.partitions
    if topic.replication_factor is not None:
        body["replication_factor"] = topic.replication_factor
    if topic.replica_assignment is not None:
        assignment = topic.replica_assignment.items()
        body["replica_assignment"] = {str(number): list(ids) for number, ids in assignment}
    if topic.configs:
        body["configs"] = dict(topic.configs)
    if dry_run:
        body["dry_run"] = True
    return body


def produce_result(document: Mapping[str, Any]) -> ProduceResult:
    """Read the response of the produce route, which states the offset after acks=0 too."""
    return ProduceResult(
        document["base_offset"],
        document.get("leader_epoch", -1),
        document.get("count", 0),
        document.get("duplicate", False),
    )


def producer_identity(document: Mapping[str, Any]) -> ProducerIdentity:
    """Read the response of the route that allocates producer ids."""
    return ProducerIdentity(document["producer_id"], document["producer_epoch"])


def found_offset(document: Mapping[str, Any]) -> int | None:
    """Return the offset that a search by time has found, if any."""
    offset: int | None = document.get("offset")
    return None if offset is None or offset < 0 else offset


def partition_offsets(document: Mapping[str, Any]) -> PartitionOffsets:
    """Read the response of the offsets route."""
    return PartitionOffsets(
        document["log_start_offset"],
        document["high_watermark"],
        document["log_end_offset"],
        document["leader_epoch"],
        document.get("last_epoch"),
    )


def epoch_end(document: Mapping[str, Any]) -> EpochEnd:
    """Read the response of the route of a leader epoch."""
    return EpochEnd(document["epoch"], document["end_offset"], document["leader_epoch"])


def fetch_result(document: Mapping[str, Any]) -> FetchResult:
    """Read the response of the fetch route in base64 format."""
    return FetchResult(
        tuple(_record(row) for row in document["records"]),
        document["high_watermark"],
        document["log_start_offset"],
        document["leader_epoch"],
        document["next_offset"],
        document.get("last_epoch"),
    )


def fetched_batches(response: Response) -> FetchedBatches:
    """Read a response of the fetch route that holds raw batches."""
    headers = response.headers
    last_epoch = headers.get("x-leadline-last-epoch")
    return FetchedBatches(
        response.body,
        int(headers["x-leadline-high-watermark"]),
        int(headers["x-leadline-log-start-offset"]),
        int(headers["x-leadline-leader-epoch"]),
        int(headers["x-leadline-next-offset"]),
        None if last_epoch is None else int(last_epoch),
        headers.get("x-leadline-topic-id"),
    )


def _record(row: Mapping[str, Any]) -> Record:
    return Record(
        row["offset"],
        row["timestamp"],
        _decoded(row.get("key")),
        _decoded(row.get("value")),
        tuple((header["name"], _decoded(header["value"])) for header in row.get("headers") or ()),
    )


def _encoded(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _decoded(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value)


def json_body(document: object) -> bytes:
    """Return a document as the body of a request."""
    return json.dumps(document, separators=(",", ":")).encode()


def document_of(response: Response) -> dict[str, Any]:
    """Return the JSON object of a response, an empty one if the response has no body.

    Raises:
        ConnectionLost: the body is something else. It comes from whatever is between the client and
            the cluster, and may have replaced the answer to a request that was carried out.

    """
    document = _maybe_json(response.body) if response.body else {}
    if not isinstance(document, dict):
        raise foreign_answer("it is no JSON object")
    return document


def decoded(read: Callable[[Answer], T], answer: Answer) -> T:
    """Return what `read` makes of an answer.

    Raises:
        ConnectionLost: the answer lacks what Leadline's have, as in `document_of`.

    """
    try:
        return read(answer)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise foreign_answer(f"{type(problem).__name__}: {problem}") from problem


def foreign_answer(reason: str) -> ConnectionLost:
    """Return the error for an answer of whatever is between the client and the cluster."""
    return ConnectionLost(
        f"the answer does not come from Leadline ({reason}): check the address, and what is in "
        "front of it"
    )


def error_of(response: Response) -> LeadlineError:
    """Return the error that a response with another status than expected stands for."""
    retry_after = response.headers.get("retry-after")
    return error_from_body(response.status, _maybe_json(response.body), retry_after)


def _maybe_json(body: bytes | bytearray) -> Any:
    """Return the JSON document in a body, or None if the body is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
