"""The partitions of a topic that exists: adding and removing them (seed 1 H)."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from leadline_client.errors import (
    ConnectionLost,
    NoController,
    PartitionRemovalPending,
    PolicyViolation,
    RequestTimedOut,
    StaleVersion,
    StoreOutcomeUnknown,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.api.models import Count, PartitionKey, Replicas, example
from leadline_common.api.routes import TopicName, also, answering_administration
from leadline_common.http.errors import error_responses

_ID = "b1946ac92492d2347c6235b4d2611184"
_ADDED = {
    "topic": "orders",
    "topic_id": _ID,
    "partitions": 8,
    "added": {"6": [1, 2], "7": [2, 3]},
    "dry_run": False,
}
_REMOVED = {
    "topic": "orders",
    "topic_id": _ID,
    "partitions": [7, 6],
    "complete": True,
    "dry_run": False,
}


class MorePartitionsBody(BaseModel):
    """How many partitions a topic is to have."""

    model_config = example({"partitions": 8})

    partitions: Count = Field(description="The new total, more than there are")
    replica_assignment: dict[PartitionKey, Replicas] | None = Field(
        default=None,
        description="Replicas of exactly the new partitions, preferred leader first; "
        "placed where left out",
    )
    dry_run: bool = Field(default=False, description="Only check and place; add nothing")


class AddedPartitions(BaseModel):
    """The partitions that were added (or, on a dry run, would be)."""

    model_config = example(_ADDED)

    topic: str
    topic_id: str
    partitions: int = Field(description="The total")
    added: dict[str, list[int]] = Field(description="The new partitions' replicas")
    dry_run: bool


class RemovalBody(BaseModel):
    """Partitions to remove: the highest ones, so that the numbers stay without gaps."""

    model_config = example({"partitions": [6, 7]})

    partitions: list[Annotated[int, Field(ge=0, strict=True)]] = Field(
        min_length=1, max_length=200_000
    )
    dry_run: bool = Field(default=False, description="Only check; remove nothing")


class RemovedPartitions(BaseModel):
    """The partitions whose removal is ordered; `complete` once nothing of them is left."""

    model_config = example(_REMOVED)

    topic: str
    topic_id: str
    partitions: list[int] = Field(description="Highest first")
    complete: bool
    dry_run: bool


class PartitionAdministration(Protocol):
    """What a controller answers about adding and removing partitions."""

    async def add_partitions(self, topic: str, wanted: MorePartitionsBody) -> AddedPartitions:
        """Add partitions, or with `dry_run` say where they would be."""

    async def remove_partitions(
        self, topic: str, going: RemovalBody, wait_ms: int
    ) -> RemovedPartitions:
        """Order the removal of partitions, and wait for it at most `wait_ms`."""


Answering = Annotated[PartitionAdministration, Depends(answering_administration)]

_DRY_ADDED = AddedPartitions.model_validate(_ADDED | {"dry_run": True})
_UNDER_WAY = RemovedPartitions.model_validate(_REMOVED | {"complete": False})
_ADD_ERRORS = error_responses(
    NoController,
    UnknownTopic,
    PolicyViolation,
    PartitionRemovalPending,
    StaleVersion,
    RequestTimedOut,
    StoreOutcomeUnknown,
    ConnectionLost,
)
_REMOVE_ERRORS = error_responses(
    NoController,
    UnknownTopic,
    UnknownPartition,
    PolicyViolation,
    PartitionRemovalPending,
    StoreOutcomeUnknown,
    ConnectionLost,
)
_WAIT = Query(ge=0, le=60_000, description="How long to wait for the removal to be complete, in ms")


def add_routes(router: APIRouter, tag: str) -> None:
    """Add the routes under `tag`."""
    _add_addition(router, tag)
    _add_removal(router, tag)


def _add_addition(router: APIRouter, tag: str) -> None:
    @router.post(
        "/topics/{topic}/partitions",
        tags=[tag],
        summary="Add partitions to a topic",
        status_code=201,
        response_description="Every new partition has its state, and every live broker knows it",
        responses=also(200, AddedPartitions, "What a dry run would add", _DRY_ADDED) | _ADD_ERRORS,
    )
    async def add_partitions(
        answering: Answering, topic: TopicName, body: MorePartitionsBody, response: Response
    ) -> AddedPartitions:
        """Bring a topic to a higher number of partitions; records stay where they are.

        Placement continues the topic's round robin over the live brokers and their
        racks, or is as given. Keys may go to other partitions from then on, as they
        are spread over more. Asking twice is refused, and changes nothing.
        """
        added = await answering.add_partitions(topic, body)
        if added.dry_run:
            response.status_code = 200
        return added


def _add_removal(router: APIRouter, tag: str) -> None:
    @router.delete(
        "/topics/{topic}/partitions",
        tags=[tag],
        summary="Remove partitions from a topic",
        response_description="Complete, or only checked: see `dry_run`",
        responses=also(202, RemovedPartitions, "Ordered, and not complete yet", _UNDER_WAY)
        | _REMOVE_ERRORS,
    )
    async def remove_partitions(
        answering: Answering,
        topic: TopicName,
        body: RemovalBody,
        response: Response,
        wait_ms: Annotated[int, _WAIT] = 10_000,
    ) -> RemovedPartitions:
        """Remove a topic's highest partitions with all their records; at least one stays.

        The order is durable at once, and carried out whatever happens to this
        controller. 200 means that nothing of them is left on live brokers and in
        ZooKeeper, 202 that it is still under way. A partition that is added later
        under the same number is another one: it begins empty, with later leader epochs.
        """
        removed = await answering.remove_partitions(topic, body, wait_ms)
        if not (removed.complete or removed.dry_run):
            response.status_code = 202
        return removed
