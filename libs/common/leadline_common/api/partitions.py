"""Adding and removing partitions of a topic (Replication V3, section H)."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import Query
from pydantic import BaseModel, Field

from leadline_client.errors import (
    PartitionRemovalPending,
    PolicyViolation,
    QuotaExceeded,
    RequestTimedOut,
    StaleVersion,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.api.models import Count, PartitionKey, Replicas, changed_example, example
from leadline_common.api.routes import (
    OtherSuccess,
    TopicName,
    dry_run,
    route,
)

_ID = "b1946ac92492d2347c6235b4d2611184"


class MorePartitionsBody(BaseModel):
    """The number of partitions that a topic shall have."""

    model_config = example({"partitions": 8})

    partitions: Count = Field(description="The new total, higher than the current one")
    replica_assignment: dict[PartitionKey, Replicas] | None = Field(
        default=None,
        description="Replicas of exactly the new partitions, preferred leader first; null to "
        "place them automatically",
    )
    dry_run: bool = Field(default=False, description="Validate and place, but add nothing")


class AddedPartitions(BaseModel):
    """The partitions that were added, or that a dry run has placed."""

    model_config = example(
        {
            "topic": "orders",
            "topic_id": _ID,
            "partitions": 8,
            "added": {"6": [1, 2], "7": [2, 3]},
            "dry_run": False,
        }
    )

    topic: str
    topic_id: str
    partitions: int = Field(description="The new total")
    added: dict[str, list[int]] = Field(description="Replicas by new partition")
    dry_run: bool


class RemovalBody(BaseModel):
    """Partitions to remove: the highest ones, so that no gaps appear in their numbers."""

    model_config = example({"partitions": [6, 7]})

    partitions: list[Annotated[int, Field(ge=0, strict=True)]] = Field(
        min_length=1, max_length=200_000
    )
    dry_run: bool = Field(default=False, description="Validate, but remove nothing")


class RemovedPartitions(BaseModel):
    """The removal of partitions; `complete` once the cluster holds nothing of them any more."""

    model_config = example(
        {
            "topic": "orders",
            "topic_id": _ID,
            "partitions": [7, 6],
            "complete": True,
            "dry_run": False,
        }
    )

    topic: str
    topic_id: str
    partitions: list[int] = Field(description="Highest first")
    complete: bool
    dry_run: bool


RemovalWait = Annotated[
    int, Query(ge=0, le=60_000, description="How long to wait for the removal to complete, in ms")
]


class PartitionAdministration(Protocol):
    """What a controller answers about adding and removing partitions."""

    @route(
        "POST /topics/{topic}/partitions",
        "Add partitions to a topic",
        UnknownTopic,
        PolicyViolation,
        PartitionRemovalPending,
        StaleVersion,
        QuotaExceeded,
        RequestTimedOut,
        status_code=201,
        response_description="The partitions exist, and every live broker has their metadata",
        other=dry_run(AddedPartitions),
    )
    async def add_partitions(self, topic: TopicName, wanted: MorePartitionsBody) -> AddedPartitions:
        """Increase the number of partitions of a topic.

        Placement continues the topic's rack-aware round robin over the live brokers, unless
        the request assigns replicas. Existing records stay in their partitions, but keys
        may map to other partitions afterwards. A repeated request is refused.
        """

    @route(
        "DELETE /topics/{topic}/partitions",
        "Remove partitions from a topic",
        UnknownTopic,
        UnknownPartition,
        PolicyViolation,
        PartitionRemovalPending,
        QuotaExceeded,
        response_description="The partitions are removed, or were only checked (`dry_run`)",
        other=OtherSuccess(
            202,
            "The removal is accepted, and still running",
            changed_example(RemovedPartitions, complete=False),
            lambda removed: not (removed.complete or removed.dry_run),
        ),
        defaults={"wait_ms": 10_000},
    )
    async def remove_partitions(
        self, topic: TopicName, going: RemovalBody, wait_ms: RemovalWait
    ) -> RemovedPartitions:
        """Remove the highest partitions of a topic with all their records; at least one stays.

        The removal is durable once accepted: it completes even if this controller fails.
        200 means that live brokers and ZooKeeper hold nothing of the partitions any more,
        and 202 that the removal is still running. A partition that is added later under the
        same number is a new one: it starts empty, with higher leader epochs.
        """
