"""Appending records, as raw batches (fast) or as JSON (readable).

The endpoint bypasses the web framework's body parsing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from leadline_broker.api.json_records import ProduceBody, encode_batch, parse_body
from leadline_broker.api.parameters import Query, topic_partition
from leadline_broker.runtime.serving.batch_checks import SMALL_BYTES
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.errors import (
    BodyTooLarge,
    BrokerFenced,
    CorruptBatch,
    FencedLeaderEpoch,
    ForeignProducerId,
    InvalidTimestamp,
    LeadershipLost,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OutOfOrderSequence,
    ProducerFenced,
    QuotaExceeded,
    RequestTimedOut,
    StorageFailed,
    TooManyProducers,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
    UnsupportedFormat,
)
from leadline_client.wire import Acks
from leadline_common.clock import Clock
from leadline_common.http.bulk import read_body, send_body
from leadline_common.http.middleware import limit_body
from leadline_common.http.operation import OCTETS, Body, Operation, Parameter
from leadline_common.http.quotas import payer_of
from leadline_common.quotas.gate import QuotaGate
from leadline_common.quotas.limits import Quota
from leadline_common.rpc import JSON

TAG = "records"
RECORDS_PATH = "/v1/topics/{topic}/partitions/{partition}/records"
PARTITION_PARAMETERS = (
    Parameter("topic", "The topic's name", {"type": "string"}, "path", example="orders"),
    Parameter(
        "partition",
        "The partition's number",
        {"type": "integer", "minimum": 0},
        "path",
        example=0,
    ),
)
LEADER_EPOCH_PARAMETER = Parameter(
    "leader_epoch",
    "The leader epoch that the client knows; the request fails if the broker has another",
    {"type": "integer", "minimum": 0},
)
BATCHES_MEDIA_TYPE = "application/vnd.leadline.batches"
_RAW_MEDIA_TYPES = frozenset({OCTETS, BATCHES_MEDIA_TYPE})
_QUERY = ("acks", "timeout_ms", "leader_epoch")
ACKS: Final = ("all", "1", "0")
ACKS_PARAMETER: Final = Parameter(
    "acks",
    "Which acknowledgement to wait for",
    {"type": "string", "enum": list(ACKS), "default": "all"},
)
MAX_TIMEOUT_MS: Final = 300_000
DEFAULT_TIMEOUT_MS: Final = 30_000


class ProduceAnswer(msgspec.Struct, omit_defaults=True):
    """The offsets of the appended records, consecutive from `base_offset`.

    `duplicate` is true if an idempotent producer repeated a batch; the offsets are then those
    of the first attempt.
    """

    base_offset: int
    leader_epoch: int
    count: int
    duplicate: bool = False


RECORDS_BODIES = (
    Body(
        JSON,
        "Records as JSON",
        ProduceBody,
        {
            "records": [{"key": "customer-7", "value": "two coffees"}, {"value": "one tea"}],
            "format": "string",
        },
    ),
    Body(OCTETS, "Whole record batches in Kafka's format v2, with a valid CRC"),
)
OPERATION = Operation(
    method="POST",
    path=RECORDS_PATH,
    name="produce",
    summary="Append records to a partition",
    description=(
        "Send the request to the leader; any other broker returns 421 and names the leader. "
        "(`POST /v1/topics/{topic}/records` needs no leader.) The "
        "records of one request are appended together or not at all. With `acks=all` (the "
        "default) the response is sent once every in-sync replica has the records on disk; with "
        "`acks=1` once the leader has appended them; with `acks=0` likewise, without any "
        "guarantee.\n\n"
        "An error's `outcome` tells whether the records may have been appended: `refused` means "
        "no, `unknown` means maybe. Only an idempotent producer can retry after `unknown` "
        "without risking duplicates. It may have up to five batches of a partition in flight: one "
        "that comes before its predecessor waits for it, for half a second at most.\n\n"
        f"For speed, send record batches (Kafka's format v2) as `{OCTETS}`."
    ),
    tags=[TAG],
    requests=RECORDS_BODIES,
    responses=[
        Body(
            JSON,
            "The records are appended, with the acknowledgement that `acks` requires",
            ProduceAnswer,
            {"base_offset": 41, "leader_epoch": 3, "count": 2},
        )
    ],
    parameters=[
        *PARTITION_PARAMETERS,
        ACKS_PARAMETER,
        Parameter(
            "timeout_ms",
            "How long to wait for the in-sync replicas, in ms",
            {"type": "integer", "minimum": 1, "default": DEFAULT_TIMEOUT_MS},
        ),
        LEADER_EPOCH_PARAMETER,
    ],
    errors=[
        CorruptBatch,
        InvalidTimestamp,
        UnknownTopic,
        UnknownPartition,
        FencedLeaderEpoch,
        UnknownLeaderEpoch,
        OutOfOrderSequence,
        ProducerFenced,
        ForeignProducerId,
        TooManyProducers,
        BodyTooLarge,
        UnsupportedFormat,
        QuotaExceeded,
        NotLeader,
        NotEnoughReplicas,
        BrokerFenced,
        StorageFailed,
        RequestTimedOut,
        LeadershipLost,
        NotEnoughReplicasAfterAppend,
    ],
)


@dataclass(frozen=True, slots=True)
class RecordBodies:
    """Reads the records that requests bring, as far as the quotas of their senders allow."""

    clock: Clock
    max_bytes: int
    quotas: QuotaGate

    async def read(self, scope: Scope, receive: Receive) -> bytearray:
        """Return the record batches of a request.

        Raises:
            QuotaExceeded: the sender has produced too much; the request counts for nothing.
            UnsupportedFormat, InvalidRequest: the body is none of records; its bytes count.

        """
        return await batches_of(scope, await self.read_octets(scope, receive), self.clock)

    async def read_octets(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body of a request, whatever it is.

        Raises:
            QuotaExceeded: the sender has produced too much; the request counts for nothing.

        """
        limit_body(scope, self.max_bytes)
        payer = payer_of(scope)
        self.quotas.admit(Quota.PRODUCE, payer)  # before the body takes time and memory
        body = await read_body(receive)
        self.quotas.admit(Quota.PRODUCE, payer, len(body))
        return body


class ProduceEndpoint:
    """The ASGI endpoint of `OPERATION`; `serving()` raises BrokerFenced while the broker starts."""

    def __init__(self, serving: Callable[[], Serving], bodies: RecordBodies) -> None:
        self._serving = serving
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Append the records of the body and return their offsets."""
        topic, partition = topic_partition(scope)
        query = Query(scope, _QUERY)
        acks = query.choice("acks", "all", ACKS)
        timeout_ms = query.integer("timeout_ms", DEFAULT_TIMEOUT_MS, least=1, most=MAX_TIMEOUT_MS)
        leader_epoch = query.optional_integer("leader_epoch")
        data = await self._bodies.read(scope, receive)
        result = await self._serving().produce(
            topic,
            partition,
            data,
            acks=cast("Acks", acks),
            timeout_ms=timeout_ms,
            leader_epoch=leader_epoch,
        )
        answer = ProduceAnswer(
            result.base_offset, result.leader_epoch, result.count, result.duplicate
        )
        await send_body(send, msgspec.json.encode(answer), JSON.encode())


async def batches_of(scope: Scope, body: bytes, clock: Clock) -> bytearray:
    """Return the record batches of a request body, which is raw batches or JSON records.

    Raises:
        UnsupportedFormat: the media type is neither.
        InvalidRequest: the JSON does not describe records.

    """
    media_type = media_type_of(scope)
    if media_type in _RAW_MEDIA_TYPES:
        return bytearray(body)
    if media_type == JSON:
        encoded = partial(_encoded, body, clock.wall_ms())
        return encoded() if len(body) <= SMALL_BYTES else await asyncio.to_thread(encoded)
    raise UnsupportedFormat(f"the body must be {JSON} or {OCTETS}, not {media_type}")


def media_type_of(scope: Scope) -> str:
    """Return the media type of a request body, JSON if none is stated."""
    content_type = Headers(scope=scope).get("content-type", JSON)
    return content_type.partition(";")[0].strip().lower()


def _encoded(body: bytes, now_ms: int) -> bytearray:
    return bytearray(encode_batch(parse_body(body), now_ms))
