"""Appending JSON records to a topic: any broker takes them for any partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, cast

import msgspec
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from leadline_broker.api.json_records import (
    MOST_RECORDS,
    EncodableRecord,
    JsonRecord,
    encodable_records,
    parse_records,
    records_decoder,
)
from leadline_broker.api.parameters import Query
from leadline_broker.api.produce import (
    ACKS,
    ACKS_PARAMETER,
    DEFAULT_TIMEOUT_MS,
    MAX_TIMEOUT_MS,
    PARTITION_PARAMETERS,
    TAG,
    RecordBodies,
    media_type_of,
)
from leadline_broker.domain.topic_appends import TopicLayout, failure_of
from leadline_broker.runtime.serving.batch_checks import SMALL_BYTES
from leadline_broker.runtime.serving.topic_appends import TopicAppends
from leadline_client import batches
from leadline_client.errors import (
    BodyTooLarge,
    BrokerFenced,
    ConnectionLost,
    CorruptBatch,
    FencedLeaderEpoch,
    InvalidTimestamp,
    LeaderNotAvailable,
    LeadershipLost,
    LeadlineError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    QuotaExceeded,
    RequestTimedOut,
    StaleIncarnation,
    StorageFailed,
    TopicIdMismatch,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
    UnsupportedFormat,
)
from leadline_client.wire import Acks, ProduceResult
from leadline_common.bulk_offsets import Number
from leadline_common.clock import Clock
from leadline_common.http.bulk import send_body
from leadline_common.http.errors import ErrorBody
from leadline_common.http.operation import Body, Operation, Parameter
from leadline_common.plain_json import encodable
from leadline_common.rpc import JSON


class TopicRecord(JsonRecord, forbid_unknown_fields=True):
    """One record to append, to the stated partition or to that of its key."""

    partition: Number | None = None


class TopicProduceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Records to append. Those of one partition are one batch, appended whole or not at all."""

    records: Annotated[list[TopicRecord], msgspec.Meta(max_length=MOST_RECORDS)]
    format: Literal["string", "json", "base64"] = "string"


class AppendedRecord(msgspec.Struct):
    """Where a record is in the log."""

    partition: int
    offset: int
    leader_epoch: int


class TopicProduceAnswer(msgspec.Struct):
    """Where the records are, in the order of the request."""

    records: list[AppendedRecord]


class RecordOutcome(BaseModel):
    """Where a record is in the log, or why it is not known to be there."""

    partition: int
    offset: int | None = Field(default=None, description="Absent with an error")
    leader_epoch: int | None = Field(default=None, description="Absent with an error")
    error: ErrorBody | None = Field(default=None, description="Absent if the record is appended")


class PartlyAppended(BaseModel):
    """What came of each record, in the order of the request; the partitions differ."""

    records: list[RecordOutcome]


_LOST = ConnectionLost("the leader did not answer")
OPERATION = Operation(
    method="POST",
    path="/v1/topics/{topic}/records",
    name="produce_to_topic",
    summary="Append records to a topic",
    description=(
        "Send the request to any broker, which passes the records on to the leaders of their "
        "partitions. A record goes to the `partition` that it states, or to that of its key, by "
        "the same hash as in Kafka's clients and in Leadline's. All records of a request without "
        "either go to one partition with a leader, another one with each request.\n\n"
        "The records of one partition are appended together or not at all; different partitions "
        "are independent of each other. The status tells what came of them:\n\n"
        "- **200**: all records are appended, with the acknowledgement that `acks` requires.\n"
        "- **207**: the records of at least one partition are, and those of another one are not, "
        "or not known to be. Each record has its offset or its `error`, whose `outcome` tells "
        "whether it may have been appended.\n"
        "- An error: no record is known to be appended. With the outcome `refused` certainly none "
        "was. With `unknown` some may have been; `partitions` has the error of each partition if "
        "there are several.\n\n"
        "The broker waits up to `timeout_ms` for a leader to be found and for its acknowledgement. "
        "It repeats a request to a leader only after a refusal. Repeating a request after "
        "`unknown` may append records twice; only an idempotent producer, which sends to leaders, "
        "can avoid that."
    ),
    tags=[TAG],
    requests=[
        Body(
            JSON,
            "Records as JSON",
            TopicProduceBody,
            {"records": [{"key": "customer-7", "value": "two coffees"}, {"value": "one tea"}]},
        )
    ],
    responses=[
        Body(
            JSON,
            "All records are appended, with the acknowledgement that `acks` requires",
            TopicProduceAnswer,
            {
                "records": [
                    {"partition": 0, "offset": 41, "leader_epoch": 3},
                    {"partition": 2, "offset": 7, "leader_epoch": 1},
                ]
            },
        )
    ],
    more_responses={
        207: Body(
            JSON,
            "The records of some partitions are appended; the others have an error",
            PartlyAppended,
            {
                "records": [
                    {"partition": 0, "offset": 41, "leader_epoch": 3},
                    {"partition": 2, "error": _LOST.body()},
                ]
            },
        )
    },
    parameters=[
        PARTITION_PARAMETERS[0],
        ACKS_PARAMETER,
        Parameter(
            "timeout_ms",
            "How long to wait for a leader and for the in-sync replicas, in ms",
            {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_TIMEOUT_MS,
                "default": DEFAULT_TIMEOUT_MS,
            },
        ),
    ],
    errors=[
        CorruptBatch,
        InvalidTimestamp,
        UnknownTopic,
        UnknownPartition,
        FencedLeaderEpoch,
        UnknownLeaderEpoch,
        StaleIncarnation,
        TopicIdMismatch,
        BodyTooLarge,
        UnsupportedFormat,
        QuotaExceeded,
        LeaderNotAvailable,
        NotEnoughReplicas,
        BrokerFenced,
        StorageFailed,
        RequestTimedOut,
        LeadershipLost,
        NotEnoughReplicasAfterAppend,
        ConnectionLost,
    ],
)
_decoder = records_decoder(TopicProduceBody)


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """The partition of each record, and a batch for each partition."""

    partitions: list[int]
    batches: dict[int, bytearray]


class TopicProduceEndpoint:
    """The ASGI endpoint of `OPERATION`; `appends()` raises BrokerFenced while the broker starts."""

    def __init__(
        self, appends: Callable[[], TopicAppends], bodies: RecordBodies, clock: Clock
    ) -> None:
        self._appends = appends
        self._bodies = bodies
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Append the records of the body and return what came of each."""
        topic = scope["path_params"]["topic"]
        query = Query(scope, ("acks", "timeout_ms"))
        acks = cast("Acks", query.choice("acks", "all", ACKS))
        timeout_ms = query.integer("timeout_ms", DEFAULT_TIMEOUT_MS, least=1, most=MAX_TIMEOUT_MS)
        body = await self._bodies.read_octets(scope, receive)
        if (media_type := media_type_of(scope)) != JSON:
            raise UnsupportedFormat(f"the body must be {JSON}, not {media_type}")
        appends = self._appends()
        place = partial(_placed, body, appends.layout(topic), self._clock.wall_ms())
        placed = place() if len(body) <= SMALL_BYTES else await asyncio.to_thread(place)
        results = await appends.append(topic, placed.batches, acks=acks, timeout_ms=timeout_ms)
        status, answer = _answer(placed.partitions, results)
        await send_body(send, answer, JSON.encode(), status=status)


def parse_topic_body(body: bytes) -> TopicProduceBody:
    """Decode the JSON body of a produce to a topic; raises InvalidRequest as `parse_records`."""
    return parse_records(_decoder.decode, body)


def _placed(body: bytes, layout: TopicLayout, now_ms: int) -> PlacedRecords:
    """Decode a body and choose the partitions.

    Raises:
        InvalidRequest: the body does not describe records.
        UnknownPartition: a record states a partition that does not exist.

    """
    parsed = parse_topic_body(body)
    partitions: list[int] = []
    groups: dict[int, list[EncodableRecord]] = {}
    for record, encoded in zip(
        parsed.records, encodable_records(parsed.records, parsed.format), strict=True
    ):
        number = layout.place(record.partition, encoded.key)
        partitions.append(number)
        groups.setdefault(number, []).append(encoded)
    encode = partial(batches.encode, now_ms=now_ms)
    return PlacedRecords(
        partitions, {number: bytearray(encode(group)) for number, group in groups.items()}
    )


def _answer(
    partitions: list[int], results: Mapping[int, ProduceResult | LeadlineError]
) -> tuple[int, bytes]:
    """Return the status and the body of a response.

    Raises:
        LeadlineError: no partition has succeeded.

    """
    errors = {number: one for number, one in results.items() if isinstance(one, LeadlineError)}
    failure = failure_of(errors.get(number) for number in results)
    if failure is not None:
        if len(errors) > 1:
            rows = [{"partition": number, "error": one.body()} for number, one in errors.items()]
            failure.details |= {"partitions": rows}
        raise failure
    shown = {number: msgspec.json.encode(encodable(one.body())) for number, one in errors.items()}
    rows_of = {
        number: _Rows(number, one, shown.get(number, b"")) for number, one in results.items()
    }
    return 207 if errors else 200, msgspec.json.encode(
        {"records": [rows_of[number].next() for number in partitions]}
    )


@dataclass(slots=True)
class _Rows:
    """The rows of the records of one partition, which are in the order of the request."""

    partition: int
    result: ProduceResult | LeadlineError
    error: bytes
    _taken: int = 0

    def next(self) -> AppendedRecord | dict[str, Any]:
        """Return the row of the next record."""
        if isinstance(self.result, LeadlineError):
            return {"partition": self.partition, "error": msgspec.Raw(self.error)}
        offset = self.result.base_offset + self._taken
        self._taken += 1
        return AppendedRecord(self.partition, offset, self.result.leader_epoch)
