"""Reading records: raw stored batches for speed, JSON for people; both may wait for data."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from leadline_broker.api.json_records import FORMATS, render
from leadline_broker.api.parameters import Query, topic_partition
from leadline_broker.api.produce import (
    LEADER_EPOCH_PARAMETER,
    PARTITION_PARAMETERS,
    RECORDS_PATH,
)
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.serving.views import FetchedData
from leadline_client import batches
from leadline_client.errors import (
    BrokerFenced,
    FencedLeaderEpoch,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import RecordFormat
from leadline_common.http.bulk import send_body
from leadline_common.http.operation import OCTETS, Body, Operation, Parameter
from leadline_common.rpc import JSON

HIGH_WATERMARK_HEADER = "X-Leadline-High-Watermark"
LOG_START_HEADER = "X-Leadline-Log-Start-Offset"
LEADER_EPOCH_HEADER = "X-Leadline-Leader-Epoch"
NEXT_OFFSET_HEADER = "X-Leadline-Next-Offset"
TOPIC_ID_HEADER = "X-Leadline-Topic-Id"
_MIB = 1024 * 1024
_MAX_FETCH_BYTES = 64 * _MIB
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
    "replica",
)


class JsonFetchedHeader(msgspec.Struct):
    """One header of a record."""

    name: str
    value: str | None


class JsonFetchedRecord(msgspec.Struct):
    """A stored record; key and value are in the format that was asked for."""

    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: list[JsonFetchedHeader]


class FetchAnswer(msgspec.Struct):
    """Records from the asked offset on, and where to read on.

    `records` is empty at the high watermark, when nothing came within `wait_ms`.
    """

    records: list[JsonFetchedRecord]
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    next_offset: int


def _number(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "integer"}, "header")


OPERATION = Operation(
    method="GET",
    path=RECORDS_PATH,
    name="fetch",
    summary="Read records from a partition",
    description=(
        "Only committed records are shown: those below the high watermark. An offset between the "
        "high watermark and the log end gives an empty answer; one outside the log is refused "
        "with 416, and the body says what there is.\n\n"
        f"With `Accept: {OCTETS}` the stored record batches come as they are. The first batch "
        "holds the asked offset, but may begin before it."
    ),
    tags=["records"],
    responses=[
        Body(
            JSON,
            "Records, perhaps none",
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
            "Stored bytes to read at most; one whole batch is always read",
            {"type": "integer", "minimum": 1, "default": _MIB},
        ),
        Parameter(
            "min_bytes",
            "Wait until there are as many bytes",
            {"type": "integer", "minimum": 0, "default": 1},
        ),
        Parameter(
            "wait_ms",
            "Wait for data no longer than this, in ms",
            {"type": "integer", "minimum": 0, "maximum": _MAX_WAIT_MS, "default": 0},
        ),
        Parameter(
            "format",
            "How keys and values are shown in JSON",
            {"type": "string", "enum": list(FORMATS), "default": "string"},
        ),
        Parameter(
            "max_records",
            "Records to show in JSON at most",
            {"type": "integer", "minimum": 1, "default": 1000},
        ),
        Parameter(
            "replica",
            "`any`: an in-sync follower answers too, up to the high watermark that it knows",
            {"type": "string", "enum": ["leader", "any"], "default": "leader"},
        ),
        LEADER_EPOCH_PARAMETER,
    ],
    answer_headers=[
        _number(HIGH_WATERMARK_HEADER, "Octets only: the first offset that is not committed"),
        _number(LOG_START_HEADER, "Octets only: the first offset kept"),
        _number(LEADER_EPOCH_HEADER, "Octets only: the leader epoch of the answer"),
        _number(NEXT_OFFSET_HEADER, "Octets only: where to read on"),
        Parameter(
            TOPIC_ID_HEADER,
            "Octets only: the topic's id; another one than before means a topic made anew",
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
        NotLeader,
        BrokerFenced,
        OffsetNotAvailable,
    ],
)


class FetchEndpoint:
    """The ASGI endpoint of `OPERATION`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read, waiting if asked to, and answer in the accepted form."""
        del receive
        topic, partition = topic_partition(scope)
        query = Query(scope, _QUERY)
        offset = query.integer("offset", None)
        form = query.choice("format", "string", FORMATS)
        max_records = query.integer("max_records", 1000, least=1, most=_MAX_RECORDS)
        data = await self._broker.fetch(
            topic,
            partition,
            offset,
            max_bytes=query.integer("max_bytes", _MIB, least=1, most=_MAX_FETCH_BYTES),
            min_bytes=query.integer("min_bytes", 1),
            wait_ms=query.integer("wait_ms", 0, most=_MAX_WAIT_MS),
            leader_epoch=query.optional_integer("leader_epoch"),
            any_replica=query.choice("replica", "leader", ("leader", "any")) == "any",
        )
        if OCTETS in Headers(scope=scope).get("accept", ""):
            await send_body(send, data.records, OCTETS.encode(), _facts(data))
            return
        body = _as_json(data, offset, cast("RecordFormat", form), max_records)
        await send_body(send, body, JSON.encode())


def _facts(data: FetchedData) -> list[tuple[bytes, bytes]]:
    facts = (
        (HIGH_WATERMARK_HEADER, data.high_watermark),
        (LOG_START_HEADER, data.log_start_offset),
        (LEADER_EPOCH_HEADER, data.leader_epoch),
        (NEXT_OFFSET_HEADER, data.next_offset),
        (TOPIC_ID_HEADER, data.topic_id),
    )
    return [(name.lower().encode(), str(value).encode()) for name, value in facts]


def _as_json(data: FetchedData, offset: int, form: RecordFormat, max_records: int) -> bytes:
    shown: list[dict[str, Any]] = []
    next_offset = data.next_offset
    for record in batches.decode(data.records):
        if record.offset < offset:
            continue
        if len(shown) == max_records:
            next_offset = record.offset
            break
        shown.append(render(record, form))
    return msgspec.json.encode(
        {
            "records": shown,
            "high_watermark": data.high_watermark,
            "log_start_offset": data.log_start_offset,
            "leader_epoch": data.leader_epoch,
            "next_offset": max(next_offset, offset),
        }
    )
