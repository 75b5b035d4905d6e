"""Staging record batches with a partition's replicas, and publishing them exactly once."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from starlette.types import Receive, Scope, Send

from leadline_broker.api.parameters import Query, number_of, topic_partition
from leadline_broker.api.produce import (
    PARTITION_PARAMETERS,
    RECORDS_BODIES,
    RECORDS_PATH,
    TAG,
    batches_of,
)
from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.serving.views import StagingResult
from leadline_client.errors import (
    BodyTooLarge,
    BrokerFenced,
    CorruptBatch,
    FencedLeaderEpoch,
    InvalidRequest,
    LeadershipLost,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    PublishMismatch,
    PublishOutOfOrder,
    RequestTimedOut,
    StagingFull,
    StorageFailed,
    UnknownPartition,
    UnknownStaged,
    UnknownTopic,
    UnsupportedFormat,
)
from leadline_common.clock import Clock
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_route, read_body, send_body
from leadline_common.http.middleware import limit_body
from leadline_common.http.operation import Body, Operation, Parameter
from leadline_common.rpc import JSON

PARTITION_PATH: Final = RECORDS_PATH.removesuffix("/records")
STAGED_PATH: Final = PARTITION_PATH + "/staged"
PUBLISH_PATH: Final = PARTITION_PATH + "/publish"
_EXAMPLE_ID: Final = "8f14e45fceea467b8d1c5bdbb1b4f7a1"
_NOT_HERE: Final = (UnknownTopic, UnknownPartition, NotLeader, BrokerFenced)


class StagedAnswer(msgspec.Struct, frozen=True):
    """What was staged; it is deleted at `expires_at_ms` (Unix ms) unless it is published."""

    staged_id: str
    records: int
    bytes: int
    expires_at_ms: int


class PublishBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Batch `batch` of the application `app`: what is staged, in this order.

    `timeout_ms` is how long to wait for the in-sync replicas.
    """

    app: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    batch: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    staged: Annotated[list[str], msgspec.Meta(min_length=1, max_length=10_000)]
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=300_000)] = 30_000


class PublishAnswer(msgspec.Struct, frozen=True):
    """Where the batch lies: from `base_offset` to `last_offset`, inclusive.

    With `duplicate` it was published before, and nothing was appended now; the
    offsets are null where they are no longer known.
    """

    base_offset: int | None
    last_offset: int | None
    leader_epoch: int
    duplicate: bool


STAGE = Operation(
    method="POST",
    path=STAGED_PATH,
    name="stage",
    summary="Stage record batches for a later publish",
    description=(
        "Ask the leader. The answer comes once every in-sync replica keeps the records, in no log: "
        "nobody reads them before they are published, and whoever leads by then can publish them. "
        "What nobody publishes is deleted after `staging.ttl.ms`."
    ),
    tags=[TAG],
    requests=RECORDS_BODIES,
    responses=[
        Body(
            JSON,
            "The batches are staged",
            StagedAnswer,
            StagedAnswer(_EXAMPLE_ID, 500, 61_440, 1_790_003_600_000),
        )
    ],
    parameters=PARTITION_PARAMETERS,
    errors=[
        *_NOT_HERE,
        CorruptBatch,
        BodyTooLarge,
        UnsupportedFormat,
        NotEnoughReplicas,
        StagingFull,
        StorageFailed,
    ],
    status=201,
)

DROP = Operation(
    method="DELETE",
    path=STAGED_PATH + "/{staged_id}",
    name="drop_staged",
    summary="Delete what is staged and will not be published",
    description="Ask the leader, who tells the other replicas.",
    tags=[TAG],
    parameters=[
        *PARTITION_PARAMETERS,
        Parameter(
            "staged_id",
            "The id that staging answered",
            {"type": "string"},
            "path",
            example=_EXAMPLE_ID,
        ),
    ],
    errors=[*_NOT_HERE, UnknownStaged],
    status=204,
)


class StageEndpoint:
    """The ASGI endpoint of `STAGE`."""

    def __init__(self, broker: Broker, clock: Clock, max_body_bytes: int) -> None:
        self._broker = broker
        self._clock = clock
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep the body's batches and answer under which id."""
        limit_body(scope, self._max_body_bytes)
        topic, partition = topic_partition(scope)
        Query(scope, ())
        data = batches_of(scope, await read_body(receive), self._clock)
        upload = await self._broker.engine.staging.stage(topic, partition, data)
        await send_body(send, _answer(upload), JSON.encode(), status=STAGE.status)


class DropEndpoint:
    """The ASGI endpoint of `DROP`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Delete an upload."""
        del receive
        topic, partition = topic_partition(scope)
        Query(scope, ())
        self._broker.engine.staging.drop(topic, partition, scope["path_params"]["staged_id"])
        await send({"type": "http.response.start", "status": DROP.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def add_staging(app: ServiceApp, broker: Broker, clock: Clock, max_body_bytes: int) -> None:
    """Add the routes that stage, delete and publish."""
    app.add_asgi_route(STAGE, StageEndpoint(broker, clock, max_body_bytes))
    app.add_asgi_route(DROP, DropEndpoint(broker))
    _add_publish(app, broker)


def _add_publish(app: ServiceApp, broker: Broker) -> None:
    async def publish(body: PublishBody, topic: str, partition: str) -> PublishAnswer:
        if len(set(body.staged)) < len(body.staged):
            raise InvalidRequest("body.staged: names an id twice")
        done = await broker.engine.publishing.publish(
            topic, number_of(partition), body.app, body.batch, body.staged, body.timeout_ms
        )
        return PublishAnswer(done.base_offset, done.last_offset, done.leader_epoch, done.duplicate)

    bulk_route(
        app,
        PUBLISH_PATH,
        publish,
        PublishBody,
        PublishAnswer,
        tag=TAG,
        parameters=PARTITION_PARAMETERS,
        name="publish",
        summary="Publish what is staged, exactly once",
        description=(
            "Ask the leader. What is staged is appended as one batch of the application, and the "
            "answer comes once every in-sync replica has it on disk. A batch that was published "
            "before is not appended again, whoever leads by now: the answer says `duplicate`.\n\n"
            "After an error whose outcome is `unknown`, publish the same batch again. Batches of "
            "an application go up; numbers may be left out. What a leader left half done is "
            "completed by the same batch, staged again with the same records."
        ),
        errors=[
            *_NOT_HERE,
            FencedLeaderEpoch,
            UnknownStaged,
            PublishMismatch,
            PublishOutOfOrder,
            NotEnoughReplicas,
            StorageFailed,
            RequestTimedOut,
            LeadershipLost,
            NotEnoughReplicasAfterAppend,
        ],
        request_example=PublishBody("nightly-import", 41, [_EXAMPLE_ID]),
        response_example=PublishAnswer(1200, 1699, 3, duplicate=False),
    )


def _answer(upload: StagingResult) -> bytes:
    return msgspec.json.encode(
        StagedAnswer(upload.staged_id, upload.records, upload.bytes, upload.expires_at_ms)
    )
