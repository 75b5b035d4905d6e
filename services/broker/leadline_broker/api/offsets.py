"""Where partitions begin and end: one by one, in bulk, and by timestamp."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from leadline_broker.runtime.broker import Broker
from leadline_client.errors import (
    BrokerFenced,
    LeadlineError,
    NotLeader,
    OffsetNotAvailable,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import PartitionOffsets
from leadline_common.api.models import example
from leadline_common.http.errors import LeaderBody, error_responses, read_only

TAG = "records"
_MAX_BULK = 100_000
_OFFSETS = {
    "log_start_offset": 0,
    "high_watermark": 42,
    "log_end_offset": 42,
    "leader_epoch": 3,
    "offset": None,
    "timestamp": None,
}


class OffsetsAnswer(BaseModel):
    """The readable range of a partition is [log_start_offset, high_watermark).

    With a timestamp, `offset` and `timestamp` are those of the first committed
    record at or after it, null when there is none.
    """

    model_config = example(_OFFSETS)

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    offset: int | None = None
    timestamp: int | None = None


class PartitionQuestion(BaseModel):
    """One partition to look up, optionally by a timestamp in Unix ms."""

    model_config = ConfigDict(extra="forbid")

    topic: str
    partition: int = Field(ge=0)
    timestamp: int | None = None


class BulkQuestion(BaseModel):
    """Name whole topics, single partitions, or both."""

    model_config = example({"partitions": [{"topic": "orders", "partition": 0, "timestamp": None}]})

    topics: list[str] = Field(default_factory=list, max_length=_MAX_BULK)
    partitions: list[PartitionQuestion] = Field(default_factory=list, max_length=_MAX_BULK)

    @model_validator(mode="after")
    def _asks_something(self) -> BulkQuestion:
        if not self.topics and not self.partitions:
            raise ValueError("name topics or partitions")
        return self


class PartitionAnswer(BaseModel):
    """The offsets of one partition, or why this broker cannot say: `error_code` is 0 for success.

    On 42150 ask the broker in `leader`.
    """

    topic: str
    partition: int
    error_code: int = 0
    message: str | None = None
    leader: LeaderBody | None = None
    offsets: OffsetsAnswer | None = None


class BulkAnswer(BaseModel):
    """One answer for each partition asked for, in order."""

    model_config = example(
        {
            "partitions": [
                {
                    "topic": "orders",
                    "partition": 0,
                    "error_code": 0,
                    "message": None,
                    "leader": None,
                    "offsets": _OFFSETS,
                }
            ]
        }
    )

    partitions: list[PartitionAnswer]


def offsets_routes(broker: Broker) -> APIRouter:
    """Return the routes that tell offsets."""
    router = APIRouter(prefix="/v1", tags=[TAG])

    @router.get(
        "/topics/{topic}/partitions/{partition}/offsets",
        summary="Tell where a partition begins and ends",
        responses=error_responses(
            UnknownTopic, UnknownPartition, NotLeader, BrokerFenced, OffsetNotAvailable
        ),
    )
    async def partition_offsets(
        topic: Annotated[str, Path(description="The topic's name", examples=["orders"])],
        partition: Annotated[int, Path(ge=0, description="The partition's number", examples=[0])],
        timestamp: Annotated[
            int | None, Query(description="Find the first record at or after this, in Unix ms")
        ] = None,
    ) -> OffsetsAnswer:
        """Ask the leader; another broker refuses with 421 and says who leads.

        A new leader refuses, retriably, until it knows that nothing committed by its
        predecessor lies beyond its own high watermark (KIP-207).
        """
        return _look_up(broker, topic, partition, timestamp)

    @router.post("/offsets", summary="Tell where many partitions begin and end")
    @read_only
    async def bulk_offsets(question: BulkQuestion) -> BulkAnswer:
        """Answer for each partition on its own: a refusal of one does not spoil the others.

        A topic named whole stands for all its partitions.
        """
        asked = [*_whole_topics(broker, question.topics), *question.partitions]
        return BulkAnswer(partitions=[_answer(broker, one) for one in asked])

    return router


def _whole_topics(broker: Broker, topics: list[str]) -> list[PartitionQuestion]:
    asked: list[PartitionQuestion] = []
    for topic in topics:
        partitions = broker.metadata.partition_numbers(topic) or [0]
        asked += [PartitionQuestion(topic=topic, partition=number) for number in partitions]
    return asked


def _answer(broker: Broker, one: PartitionQuestion) -> PartitionAnswer:
    try:
        found = _look_up(broker, one.topic, one.partition, one.timestamp)
    except LeadlineError as error:
        hint = error.leader
        return PartitionAnswer(
            topic=one.topic,
            partition=one.partition,
            error_code=error.code,
            message=error.message,
            leader=LeaderBody(id=hint.id, url=hint.url, epoch=hint.epoch) if hint else None,
        )
    return PartitionAnswer(topic=one.topic, partition=one.partition, offsets=found)


def _look_up(broker: Broker, topic: str, partition: int, timestamp: int | None) -> OffsetsAnswer:
    ends: PartitionOffsets = broker.offsets(topic, partition)
    found = (
        broker.offset_for_timestamp(topic, partition, timestamp) if timestamp is not None else None
    )
    return OffsetsAnswer(
        log_start_offset=ends.log_start_offset,
        high_watermark=ends.high_watermark,
        log_end_offset=ends.log_end_offset,
        leader_epoch=ends.leader_epoch,
        offset=found[0] if found else None,
        timestamp=found[1] if found else None,
    )
