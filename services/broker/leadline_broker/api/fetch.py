"""Reading records, as raw batches (fast) or as JSON (readable); both can wait for data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from leadline_broker.api.json_answers import JsonShape, answer_json
from leadline_broker.api.json_records import FORMATS
from leadline_broker.api.parameters import ROUTE_DESCRIPTION, ROUTES, Query, topic_partition
from leadline_broker.api.produce import (
    LEADER_EPOCH_PARAMETER,
    PARTITION_PARAMETERS,
    RECORDS_PATH,
)
from leadline_broker.runtime.serving.batch_checks import SMALL_BYTES
from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_broker.runtime.serving.routing import Reading, RoutedRecords
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.batch_header import parse_headers
from leadline_client.errors import (
    BrokerFenced,
    FencedLeaderEpoch,
    LeaderNotAvailable,
    LogTruncated,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    QuotaExceeded,
    TopicIdMismatch,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
    UnreadableBatch,
)
from leadline_client.wire import RecordFormat
from leadline_common.access.rights import Action
from leadline_common.http.access import require_still
from leadline_common.http.bulk import send_body
from leadline_common.http.operation import OCTETS, Body, Operation, Parameter
from leadline_common.http.quotas import payer_of
from leadline_common.quotas.gate import QuotaGate
from leadline_common.quotas.limits import Quota
from leadline_common.rpc import JSON

HIGH_WATERMARK_HEADER = "X-Leadline-High-Watermark"
LOG_START_HEADER = "X-Leadline-Log-Start-Offset"
LEADER_EPOCH_HEADER = "X-Leadline-Leader-Epoch"
NEXT_OFFSET_HEADER = "X-Leadline-Next-Offset"
LAST_EPOCH_HEADER = "X-Leadline-Last-Epoch"
TOPIC_ID_HEADER = "X-Leadline-Topic-Id"
MIB = 1024 * 1024
MAX_FETCH_BYTES = 64 * MIB
_MAX_WAIT_MS = 60_000
_MAX_RECORDS = 100_000
_QUERY = (
    "offset",
    "max_bytes",
    "min_bytes",
    "wait_ms",
    "format",
    "max_records",
    "leader_epoch",
    "last_epoch",
    "replica",
    "route",
)


class JsonFetchedHeader(msgspec.Struct):
    """One header of a record."""

    name: str
    value: str | None


class JsonFetchedRecord(msgspec.Struct):
    """A stored record; key and value are in the requested format."""

    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: list[JsonFetchedHeader]


class FetchAnswer(msgspec.Struct):
    """Records from the requested offset on, and the next offset to read.

    `records` is empty if no record was committed within `wait_ms`. `last_epoch` is the leader epoch
    of the record before `next_offset`, null if it is unknown; state both in the next request.
    """

    records: list[JsonFetchedRecord]
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    next_offset: int
    last_epoch: int | None


def _number(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "integer"}, "header")


OPERATION = Operation(
    method="GET",
    path=RECORDS_PATH,
    name="fetch",
    summary="Read records from a partition",
    description=(
        "Returns only committed records, which are those below the high watermark. An offset "
        "between the high watermark and the log end returns no records; one outside the log "
        "returns 416 with the available range.\n\n"
        "A reader that states `last_epoch` learns of a truncation: if an unclean election has "
        "removed the record before `offset`, the response is 416 with the error code 41651 and "
        "`divergence_offset`, from which on the log has other records than before (KIP-320).\n\n"
        f"With `Accept: {OCTETS}` the response contains the stored record batches unchanged. The "
        "first batch contains the requested offset, but may begin before it."
    ),
    tags=["records"],
    responses=[
        Body(
            JSON,
            "The records, possibly none",
            FetchAnswer,
            {
                "records": [
                    {
                        "offset": 41,
                        "timestamp": 1790000000000,
                        "key": "customer-7",
                        "value": "two coffees",
                        "headers": [],
                    }
                ],
                "high_watermark": 42,
                "log_start_offset": 0,
                "leader_epoch": 3,
                "next_offset": 42,
                "last_epoch": 3,
            },
        ),
        Body(OCTETS, "Whole record batches in Kafka's format v2"),
    ],
    parameters=[
        *PARTITION_PARAMETERS,
        Parameter(
            "offset",
            "The first offset to read",
            {"type": "integer", "minimum": 0},
            required=True,
            example=0,
        ),
        Parameter(
            "max_bytes",
            "The maximum of stored bytes to read, and of the bytes of records as JSON; at least "
            "one batch is read, of which JSON has at least one record",
            {"type": "integer", "minimum": 1, "default": MIB},
        ),
        Parameter(
            "min_bytes",
            "Wait until this many bytes are available",
            {"type": "integer", "minimum": 0, "default": 1},
        ),
        Parameter(
            "wait_ms",
            "How long to wait for data at most, in ms",
            {"type": "integer", "minimum": 0, "maximum": _MAX_WAIT_MS, "default": 0},
        ),
        Parameter(
            "format",
            "The format of keys and values in JSON",
            {"type": "string", "enum": list(FORMATS), "default": "string"},
        ),
        Parameter(
            "max_records",
            "The maximum of records in a JSON response",
            {"type": "integer", "minimum": 1, "default": 1000},
        ),
        Parameter(
            "replica",
            "`any`: an in-sync follower serves the request too, up to its own high watermark",
            {"type": "string", "enum": ["leader", "any"], "default": "leader"},
        ),
        Parameter(
            "route",
            ROUTE_DESCRIPTION,
            {"type": "string", "enum": list(ROUTES), "default": "leader"},
        ),
        LEADER_EPOCH_PARAMETER,
        Parameter(
            "last_epoch",
            "The leader epoch of the record before `offset`, as `last_epoch` of the response that "
            "ended there",
            {"type": "integer", "minimum": 0},
        ),
    ],
    answer_headers=[
        _number(HIGH_WATERMARK_HEADER, "Octets only: the first offset that is not committed"),
        _number(LOG_START_HEADER, "Octets only: the first offset in the log"),
        _number(LEADER_EPOCH_HEADER, "Octets only: the leader epoch"),
        _number(NEXT_OFFSET_HEADER, "Octets only: the next offset to read"),
        _number(
            LAST_EPOCH_HEADER,
            "Octets only: the leader epoch of the record before the next offset; absent if unknown",
        ),
        Parameter(
            TOPIC_ID_HEADER,
            "Octets only: the topic's id, which changes when a topic is deleted and recreated",
            {"type": "string"},
            "header",
        ),
    ],
    errors=[
        UnknownTopic,
        UnknownPartition,
        FencedLeaderEpoch,
        UnknownLeaderEpoch,
        OffsetOutOfRange,
        LogTruncated,
        QuotaExceeded,
        TopicIdMismatch,
        NotLeader,
        LeaderNotAvailable,
        BrokerFenced,
        OffsetNotAvailable,
        UnreadableBatch,
    ],
)


class FetchEndpoint:
    """The ASGI endpoint of `OPERATION`.

    `serving()` and `routed()` raise BrokerFenced while the broker starts.
    """

    def __init__(
        self,
        serving: Callable[[], Serving],
        routed: Callable[[], RoutedRecords],
        quotas: QuotaGate,
    ) -> None:
        self._serving = serving
        self._routed = routed
        self._quotas = quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read records and return them in the accepted format."""
        del receive
        topic, partition = topic_partition(scope)
        query = Query(scope, _QUERY)
        form = query.choice("format", "string", FORMATS)
        max_records = query.integer("max_records", 1000, least=1, most=_MAX_RECORDS)
        reading = _reading(query)
        payer = payer_of(scope)
        self._quotas.admit(Quota.FETCH, payer)
        any_broker = query.choice("route", "leader", ROUTES) == "any"
        routed = self._routed()
        fetch = routed.fetch if any_broker else routed.fetch_here
        data = await fetch(topic, partition, reading)
        if reading.wait_ms:
            require_still(scope, Action.READ, [topic])
        if OCTETS in Headers(scope=scope).get("accept", ""):
            self._quotas.charge(Quota.FETCH, payer, len(data.records))
            await send_body(send, data.records, OCTETS.encode(), _offset_headers(data))
            return
        shape = JsonShape(cast("RecordFormat", form), max_records, reading.max_bytes)
        try:
            body = await self._json(data, reading.offset, shape)
        except UnreadableBatch as error:
            raise error.within(topic, partition) from error
        self._quotas.charge(Quota.FETCH, payer, len(body))
        await send_body(send, body, JSON.encode())

    async def _json(self, data: FetchedData, offset: int, shape: JsonShape) -> bytes:
        """Return the records as JSON; large or compressed batches are decoded in a thread."""
        headers = parse_headers(data.records)
        if len(data.records) <= SMALL_BYTES and not any(one.attributes for one in headers):
            return answer_json(data, offset, shape)
        return await self._serving().checks.read_in_worker(
            partial(answer_json, data, offset, shape)
        )


def _reading(query: Query) -> Reading:
    return Reading(
        offset=query.integer("offset", None),
        max_bytes=query.integer("max_bytes", MIB, least=1, most=MAX_FETCH_BYTES),
        min_bytes=query.integer("min_bytes", 1),
        wait_ms=query.integer("wait_ms", 0, most=_MAX_WAIT_MS),
        leader_epoch=query.optional_integer("leader_epoch"),
        last_epoch=query.optional_integer("last_epoch"),
        any_replica=query.choice("replica", "leader", ("leader", "any")) == "any",
    )


def _offset_headers(data: FetchedData) -> list[tuple[bytes, bytes]]:
    headers = (
        (HIGH_WATERMARK_HEADER, data.high_watermark),
        (LOG_START_HEADER, data.log_start_offset),
        (LEADER_EPOCH_HEADER, data.leader_epoch),
        (NEXT_OFFSET_HEADER, data.next_offset),
        (LAST_EPOCH_HEADER, data.last_epoch),
        (TOPIC_ID_HEADER, data.topic_id),
    )
    return [
        (name.lower().encode(), str(value).encode()) for name, value in headers if value is not None
    ]
