"""Bodies of the client's requests and answers, to and from Python values. Pure."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leadline_client.transport import Response
from leadline_client.wire import FetchResult, NewTopic, ProduceResult, Record


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to be produced; without a timestamp (Unix ms) it gets the present one."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What an idempotent producer stamps on its batches, with a sequence number."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole v2 batches as stored, and the facts that came with them."""

    batches: bytes
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    next_offset: int


def record_json(record: OutgoingRecord) -> dict[str, Any]:
    """Return a record as the produce route reads it in base64 format."""
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
    """Return the body that `POST /v1/topics` takes; what is not given is left out."""
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
    """Read the answer of the produce route; after acks=0 it knows no offset (-1)."""
    return ProduceResult(
        document.get("base_offset", -1),
        document.get("leader_epoch", -1),
        document.get("count", 0),
        document.get("duplicate", False),
    )


def fetch_result(document: Mapping[str, Any]) -> FetchResult:
    """Read the answer of the fetch route in base64 format."""
    return FetchResult(
        tuple(_record(row) for row in document["records"]),
        document["high_watermark"],
        document["log_start_offset"],
        document["leader_epoch"],
        document["next_offset"],
    )


def fetched_batches(response: Response) -> FetchedBatches:
    """Read the answer of the fetch route that holds raw batches."""
    headers = response.headers
    return FetchedBatches(
        response.body,
        int(headers["x-leadline-high-watermark"]),
        int(headers["x-leadline-log-start-offset"]),
        int(headers["x-leadline-leader-epoch"]),
        int(headers["x-leadline-next-offset"]),
    )


def _record(row: Mapping[str, Any]) -> Record:
    return Record(
        row["offset"],
        row["timestamp"],
        _decoded(row.get("key")),
        _decoded(row.get("value")),
        tuple((one["name"], _decoded(one["value"])) for one in row.get("headers") or ()),
    )


def _encoded(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _decoded(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value)


def json_body(document: object) -> bytes:
    """Return a document as the body of a request."""
    return json.dumps(document, separators=(",", ":")).encode()


def maybe_json(body: bytes | bytearray) -> Any:
    """Return the document of a body, or None where it is none."""
    try:
        return json.loads(body)
    except ValueError:
        return None
