"""Offsets of partitions: one by one, in bulk, by timestamp, and by leader epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

from fastapi import Path, Query
from pydantic import BaseModel

from leadline_broker.api.parameters import INT64_MAX, ROUTE_DESCRIPTION
from leadline_broker.api.produce import LEADER_EPOCH_PARAMETER
from leadline_broker.runtime.serving.offset_finder import OffsetFinder
from leadline_broker.runtime.serving.routing import RoutedRecords
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.errors import (
    BrokerFenced,
    FencedLeaderEpoch,
    LeaderNotAvailable,
    NotLeader,
    OffsetNotAvailable,
    TopicIdMismatch,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.access.caller import require
from leadline_common.access.rights import Action
from leadline_common.api.models import example
from leadline_common.bulk_offsets import (
    EARLIEST,
    OFFSETS_PATH,
    BulkAnswer,
    BulkQuestion,
    LeaderRow,
    PartitionAnswer,
    PartitionEnds,
    PartitionQuestion,
)
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_route
from leadline_common.http.errors import error_responses
from leadline_common.http.router import ServiceRouter

TAG = "records"
_TOPIC = Path(description="The topic's name", examples=["orders"])
_PARTITION = Path(ge=0, description="The partition's number", examples=[0])
_StatedEpoch: TypeAlias = Annotated[
    int | None, Query(ge=0, le=2**31 - 1, description=LEADER_EPOCH_PARAMETER.description)
]
_OFFSETS = {
    "log_start_offset": 0,
    "high_watermark": 42,
    "log_end_offset": 42,
    "leader_epoch": 3,
    "offset": None,
    "timestamp": None,
    "last_epoch": 3,
}


class OffsetsAnswer(BaseModel):
    """The readable range of a partition is [log_start_offset, high_watermark).

    With a timestamp, `offset` and `timestamp` are those of the first committed record at or
    after it, null if there is none. `last_epoch` is the leader epoch of the record before `offset`,
    or else before the high watermark; a fetch that begins there states it.
    """

    model_config = example(_OFFSETS)

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    offset: int | None = None
    timestamp: int | None = None
    last_epoch: int | None = None


class EpochEndAnswer(BaseModel):
    """The end of a leader epoch in the log of the current leader.

    `epoch` is the latest one not above the requested epoch, -1 if the log begins later;
    `end_offset` is exclusive, and is the log end for the current epoch.
    """

    model_config = example({"epoch": 3, "end_offset": 42, "leader_epoch": 5})

    epoch: int
    end_offset: int
    leader_epoch: int


def offsets_routes(
    serving: Callable[[], Serving], routed: Callable[[], RoutedRecords]
) -> ServiceRouter:
    """Return the routes for the offsets of one partition."""
    router = ServiceRouter(prefix="/v1", tags=[TAG])
    _add_partition_offsets(router, serving, routed)
    _add_epoch_end(router, serving)
    return router


def _add_partition_offsets(
    router: ServiceRouter, serving: Callable[[], Serving], routed: Callable[[], RoutedRecords]
) -> None:
    @router.get(
        "/topics/{topic}/partitions/{partition}/offsets",
        summary="Get the offsets of a partition",
        responses=error_responses(
            UnknownTopic,
            UnknownPartition,
            TopicIdMismatch,
            NotLeader,
            LeaderNotAvailable,
            BrokerFenced,
            OffsetNotAvailable,
            FencedLeaderEpoch,
            UnknownLeaderEpoch,
        ),
    )
    async def partition_offsets(
        topic: Annotated[str, _TOPIC],
        partition: Annotated[int, _PARTITION],
        timestamp: Annotated[
            int | None,
            Query(
                ge=EARLIEST,
                le=INT64_MAX,
                description="Find the first record at or after this time, in Unix ms; -2 is the "
                "log start, -1 the high watermark",
            ),
        ] = None,
        route: Annotated[Literal["leader", "any"], Query(description=ROUTE_DESCRIPTION)] = "leader",
        leader_epoch: _StatedEpoch = None,
    ) -> OffsetsAnswer:
        """Send the request to the leader; any other broker returns 421 and names the leader.

        With `route=any` send it to any broker.

        A new leader returns a retriable error until its high watermark covers everything that
        its predecessor has committed (KIP-207).
        """
        source = routed() if route == "any" else serving()
        ends = await source.offsets(topic, partition, timestamp, leader_epoch)
        return OffsetsAnswer.model_validate(ends, from_attributes=True)


def _add_epoch_end(router: ServiceRouter, serving: Callable[[], Serving]) -> None:
    @router.get(
        "/topics/{topic}/partitions/{partition}/epochs/{epoch}",
        summary="Get the end offset of a leader epoch",
        responses=error_responses(
            UnknownTopic,
            UnknownPartition,
            NotLeader,
            BrokerFenced,
            FencedLeaderEpoch,
            UnknownLeaderEpoch,
        ),
    )
    async def epoch_end(
        topic: Annotated[str, _TOPIC],
        partition: Annotated[int, _PARTITION],
        epoch: Annotated[
            int, Path(ge=0, le=2**31 - 1, description="The leader epoch", examples=[0])
        ],
        leader_epoch: _StatedEpoch = None,
    ) -> EpochEndAnswer:
        """Check whether records that were read in an epoch are still in the log (KIP-320).

        Send the request to the leader. A reader that has read beyond `end_offset` in `epoch`
        or earlier has read records that an unclean election has since removed.
        """
        found = serving().epoch_end(topic, partition, epoch, leader_epoch)
        return EpochEndAnswer.model_validate(found, from_attributes=True)


def add_bulk_offsets(app: ServiceApp, offset_finder: Callable[[], OffsetFinder]) -> None:
    """Add the route for the offsets of many partitions of the whole cluster."""

    async def bulk_offsets(question: BulkQuestion) -> BulkAnswer:
        named = (row.topic for row in question.partitions)
        require(Action.DESCRIBE, "topic", {*question.topics, *named})
        return await offset_finder().answer(question)

    row = PartitionAnswer(
        "orders",
        0,
        leader=LeaderRow(2, "http://127.0.0.1:9092", 3),
        offsets=PartitionEnds(0, 42, 42, 3),
    )
    bulk_route(
        app,
        OFFSETS_PATH,
        bulk_offsets,
        BulkQuestion,
        BulkAnswer,
        tag=TAG,
        name="bulk_offsets",
        summary="List the offsets of many partitions",
        description=(
            "Send the request to any broker. It answers for the partitions that it leads and asks "
            "the other leaders for the rest, unless the scope is `local`. An entry in `topics` "
            "stands for all partitions of the topic. Each partition has its own result, so one "
            "error does not affect the others.\n\n"
            "With `wait_ms` and `after` this is a long poll: the response is sent as soon as a "
            "high watermark is beyond its offset in `after`."
        ),
        errors=[BrokerFenced],
        request_example=BulkQuestion(partitions=[PartitionQuestion("orders", 0)]),
        response_example=BulkAnswer([row]),
        changes_nothing=True,
        long_list="partitions",
        long_answer="partitions",
    )
