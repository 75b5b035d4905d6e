"""Failed brokers, their self-healing, and the history of both (KIP-46)."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from leadline_client.errors import HistoryUnavailable
from leadline_common.api.models import example
from leadline_common.api.routes import get_administration, read_errors
from leadline_common.settings.fields import INT32_MAX

TAG = "self-healing"
TAGS = ({"name": TAG, "description": "Failed brokers, and the replacement of their replicas."},)

_FAILED = {
    "id": 3,
    "failed_at": 1767225600000,
    "due_at": 1767226200000,
    "incarnation": 4,
    "detected_in_controller_epoch": 2,
    "partitions": 160,
    "chunks": ["0000000012"],
}
_FAILURE = {
    "broker": 3,
    "failed_at": 1767225600000,
    "incarnation": 4,
    "detected_by": "controller-1",
    "controller_epoch": 2,
    "outcome": "healed",
    "queued_at": 1767226200004,
    "over_at": 1767226320000,
    "returned_at": None,
    "chunks": 4,
    "chunks_over": 4,
    "chunks_cancelled": 0,
    "partitions": 160,
    "partitions_moved": 160,
    "bytes_moved": 0,
    "down_ms": None,
    "healing_ms": 119996,
}
Outcome = Literal["failed", "cancelled", "healing", "healed", "partly_healed"]


class FailedBrokerBody(BaseModel):
    """A failed broker; times in Unix ms."""

    model_config = example(_FAILED)

    id: int
    failed_at: int | None = Field(
        description="When a controller first saw the failure; null once its chunks are queued"
    )
    due_at: int | None = Field(
        description="When healing starts; null while self-healing is disabled"
    )
    incarnation: int | None
    detected_in_controller_epoch: int | None
    partitions: int = Field(description="Partitions with a replica on the broker")
    chunks: list[str] = Field(description="Ids of unfinished tasks, in order")


class FailedBrokersBody(BaseModel):
    """All failed brokers, and whether self-healing is suspended."""

    model_config = example({"suspended": False, "interval_ms": 600000, "brokers": [_FAILED]})

    suspended: bool = Field(
        description="True while more brokers have failed than failed.broker.budget.percent allows"
    )
    interval_ms: int = Field(description="failed.broker.interval.ms; -1 disables self-healing")
    brokers: list[FailedBrokerBody]


class BrokerFailure(BaseModel):
    """One failure of a broker, from its detection to the end of healing; times in Unix ms."""

    model_config = example(_FAILURE)

    broker: int
    failed_at: int
    incarnation: int
    detected_by: str
    controller_epoch: int
    outcome: Outcome
    queued_at: int | None = Field(
        description="When the broker was declared dead and its chunks were queued"
    )
    over_at: int | None = Field(description="When the last chunk finished")
    returned_at: int | None
    chunks: int
    chunks_over: int
    chunks_cancelled: int
    partitions: int
    partitions_moved: int
    bytes_moved: int = Field(
        description="Bytes that leaders reported; small replicas that copied fast are not included"
    )
    down_ms: int | None = Field(description="The time from the failure to the broker's return")
    healing_ms: int | None = Field(
        description="The time from the queueing to the end of the last chunk"
    )


class BrokerFailures(BaseModel):
    """Failures, newest first."""

    model_config = example({"failures": [_FAILURE]})

    failures: list[BrokerFailure]


class HealingAdministration(Protocol):
    """What a controller answers about failed brokers."""

    def failed_brokers(self) -> FailedBrokersBody:
        """Return the failed brokers."""

    async def broker_failures(self, broker: int | None, limit: int) -> BrokerFailures:
        """Return the failures of a broker, or of all."""


Controller = Annotated[HealingAdministration, Depends(get_administration)]


def add_routes(router: APIRouter) -> None:
    """Add the routes of failed brokers."""

    @router.get(
        "/failed-brokers",
        tags=[TAG],
        summary="List failed brokers",
        responses=read_errors(),
    )
    async def list_failed_brokers(controller: Controller) -> FailedBrokersBody:
        """List the failed brokers and those being healed, with their unfinished chunks."""
        return controller.failed_brokers()

    @router.get(
        "/failed-brokers/history",
        tags=[TAG],
        summary="List broker failures",
        responses=read_errors(HistoryUnavailable),
    )
    async def list_broker_failures(
        controller: Controller,
        broker: Annotated[
            int | None, Query(ge=0, le=INT32_MAX, description="Only failures of this broker")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=10_000, description="How many of the newest")] = 100,
    ) -> BrokerFailures:
        """List failures, newest first, each with its detection, healing and outcome."""
        return await controller.broker_failures(broker, limit)
