"""Staging record batches on a partition's replicas, and publishing them exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from starlette.types import Receive, Scope, Send

from leadline_broker.api.parameters import Query, number_of, topic_partition
from leadline_broker.api.produce import (
    LEADER_EPOCH_PARAMETER,
    PARTITION_PARAMETERS,
    RECORDS_BODIES,
    RECORDS_PATH,
    TAG,
    RecordBodies,
)
from leadline_broker.domain.publishes import LAST_BATCH
from leadline_broker.runtime.staging.publishing import PublishedBatch, Publishing
from leadline_broker.runtime.staging.staging import Staging, StagingResult
from leadline_client.errors import (
    BodyTooLarge,
    BrokerFenced,
    CorruptBatch,
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidTimestamp,
    LeadershipLost,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    PublishMismatch,
    PublishOutOfOrder,
    QuotaExceeded,
    RequestTimedOut,
    StagingFull,
    StorageFailed,
    TooManyProducers,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownStaged,
    UnknownTopic,
    UnsupportedFormat,
)
from leadline_client.wire import MOST_STAGED
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_route, send_body
from leadline_common.http.operation import Body, Operation, Parameter
from leadline_common.rpc import JSON

PARTITION_PATH: Final = RECORDS_PATH.removesuffix("/records")
STAGED_PATH: Final = PARTITION_PATH + "/staged"
PUBLISH_PATH: Final = PARTITION_PATH + "/publish"
_EXAMPLE_ID: Final = "8f14e45fceea467b8d1c5bdbb1b4f7a1"
_NOT_HERE: Final = (UnknownTopic, UnknownPartition, NotLeader, BrokerFenced)


class PublishBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Batch number `batch` of the application `app`: the staged uploads, in this order.

    `timeout_ms` is how long to wait for the in-sync replicas.
    """

    app: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    batch: Annotated[int, msgspec.Meta(ge=0, le=LAST_BATCH)]
    staged: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_STAGED)]
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=300_000)] = 30_000


STAGE = Operation(
    method="POST",
    path=STAGED_PATH,
    name="stage",
    summary="Stage record batches for a later publish",
    description=(
        "Send the request to the leader. The response is sent once every in-sync replica has "
        "stored the batches outside the log. Consumers cannot read them before they are "
        "published, and any later leader can publish them. Batches that are not published "
        "are deleted after `staging.ttl.ms`."
    ),
    tags=[TAG],
    requests=RECORDS_BODIES,
    responses=[
        Body(
            JSON,
            "The batches are staged",
            StagingResult,
            StagingResult(_EXAMPLE_ID, 500, 61_440, 1_790_003_600_000),
        )
    ],
    parameters=[*PARTITION_PARAMETERS, LEADER_EPOCH_PARAMETER],
    errors=[
        *_NOT_HERE,
        FencedLeaderEpoch,
        UnknownLeaderEpoch,
        CorruptBatch,
        InvalidTimestamp,
        BodyTooLarge,
        UnsupportedFormat,
        QuotaExceeded,
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
    summary="Delete staged record batches",
    description="Send the request to the leader, which also deletes the copies on other replicas.",
    tags=[TAG],
    parameters=[
        *PARTITION_PARAMETERS,
        Parameter(
            "staged_id",
            "The id that staging returned",
            {"type": "string"},
            "path",
            example=_EXAMPLE_ID,
        ),
    ],
    errors=[*_NOT_HERE, UnknownStaged],
    status=204,
)


class StageEndpoint:
    """The ASGI endpoint of `STAGE`; `staging()` raises BrokerFenced while the broker starts."""

    def __init__(self, staging: Callable[[], Staging], bodies: RecordBodies) -> None:
        self._staging = staging
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stage the batches of the body and return their id."""
        topic, partition = topic_partition(scope)
        leader_epoch = Query(scope, ("leader_epoch",)).optional_integer("leader_epoch")
        data = await self._bodies.read(scope, receive)
        upload = await self._staging().stage(topic, partition, data, leader_epoch)
        await send_body(send, msgspec.json.encode(upload), JSON.encode(), status=STAGE.status)


class DropEndpoint:
    """The ASGI endpoint of `DROP`; `staging()` raises BrokerFenced while the broker starts."""

    def __init__(self, staging: Callable[[], Staging]) -> None:
        self._staging = staging

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Delete a staged upload."""
        del receive
        topic, partition = topic_partition(scope)
        Query(scope, ())
        self._staging().drop(topic, partition, scope["path_params"]["staged_id"])
        await send({"type": "http.response.start", "status": DROP.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def add_publish(app: ServiceApp, publishing: Callable[[], Publishing]) -> None:
    """Add the route that publishes."""

    async def publish(body: PublishBody, topic: str, partition: str) -> PublishedBatch:
        if len(set(body.staged)) < len(body.staged):
            raise InvalidRequest("body.staged: contains an id twice")
        return await publishing().publish(
            topic, number_of(partition), body.app, body.batch, body.staged, body.timeout_ms
        )

    bulk_route(
        app,
        PUBLISH_PATH,
        publish,
        PublishBody,
        PublishedBatch,
        tag=TAG,
        parameters=PARTITION_PARAMETERS,
        name="publish",
        summary="Publish staged record batches exactly once",
        description=(
            "Send the request to the leader. The staged uploads are appended as one batch of the "
            "application, and the response is sent once every in-sync replica has it on disk. A "
            "batch that is already published is not appended again, even by another leader: the "
            "response then has `duplicate`.\n\n"
            "After an error whose outcome is `unknown`, publish the same batch again. Batch "
            "numbers of an application increase; gaps are allowed. To complete a batch that a "
            "leader published only in part, stage the same records again and publish them under "
            "the same number."
        ),
        errors=[
            *_NOT_HERE,
            FencedLeaderEpoch,
            UnknownStaged,
            PublishMismatch,
            PublishOutOfOrder,
            NotEnoughReplicas,
            TooManyProducers,
            StorageFailed,
            RequestTimedOut,
            LeadershipLost,
            NotEnoughReplicasAfterAppend,
        ],
        request_example=PublishBody("nightly-import", 41, [_EXAMPLE_ID]),
        response_example=PublishedBatch(1200, 1699, 3, duplicate=False),
    )
