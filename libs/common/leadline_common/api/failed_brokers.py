"""Brokers that are down, what is done about it, and the history of it all (KIP-46)."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from leadline_client.errors import HistoryUnavailable, NoController
from leadline_common.api.models import example
from leadline_common.api.routes import answering_administration
from leadline_common.http.errors import error_responses
from leadline_common.settings.fields import INT32_MAX

TAG = "self-healing"
TAGS = ({"name": TAG, "description": "Failed brokers, and their replicas made anew on others."},)

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


class FailedBroker(BaseModel):
    """A broker that is down; times in Unix ms."""

    model_config = example(_FAILED)

    id: int
    failed_at: int | None = Field(description="The first news of it; null once all is queued")
    due_at: int | None = Field(description="When healing begins; null while that is switched off")
    incarnation: int | None
    detected_in_controller_epoch: int | None
    partitions: int = Field(description="That have a replica on it")
    chunks: list[str] = Field(description="Tasks that are not over, in order")


class FailedBrokers(BaseModel):
    """All brokers that are down, and whether they are being healed."""

    model_config = example({"suspended": False, "interval_ms": 600000, "brokers": [_FAILED]})

    suspended: bool = Field(description="More are down than failed.broker.budget.percent allows")
    interval_ms: int = Field(description="failed.broker.interval.ms; -1 switches healing off")
    brokers: list[FailedBroker]


class BrokerFailure(BaseModel):
    """One failure of a broker from the first news to the end; times in Unix ms."""

    model_config = example(_FAILURE)

    broker: int
    failed_at: int
    incarnation: int
    detected_by: str
    controller_epoch: int
    outcome: Outcome
    queued_at: int | None = Field(description="When it counted as dead and its chunks were queued")
    over_at: int | None = Field(description="When the last chunk was over")
    returned_at: int | None
    chunks: int
    chunks_over: int
    chunks_cancelled: int
    partitions: int
    partitions_moved: int
    bytes_moved: int = Field(
        description="As leaders told of it; replicas that were quick, and small, are not in it"
    )
    down_ms: int | None = Field(description="From the failure to the return")
    healing_ms: int | None = Field(description="From the queueing to the end of the last chunk")


class BrokerFailures(BaseModel):
    """Failures, newest first."""

    model_config = example({"failures": [_FAILURE]})

    failures: list[BrokerFailure]


class HealingAdministration(Protocol):
    """What a controller answers of failed brokers."""

    def failed_brokers(self) -> FailedBrokers:
        """Return the brokers that are down."""

    async def broker_failures(self, broker: int | None, limit: int) -> BrokerFailures:
        """Return the failures of a broker, or of all."""


Answering = Annotated[HealingAdministration, Depends(answering_administration)]


def add_routes(router: APIRouter) -> None:
    """Add the routes of this area."""

    @router.get(
        "/failed-brokers",
        tags=[TAG],
        summary="Which brokers are down, and what is done about it?",
        responses=error_responses(NoController),
    )
    async def list_failed_brokers(answering: Answering) -> FailedBrokers:
        """List the brokers that are down or being healed, with the chunks that are not over."""
        return answering.failed_brokers()

    @router.get(
        "/failed-brokers/history",
        tags=[TAG],
        summary="Every failure of a broker",
        responses=error_responses(NoController, HistoryUnavailable),
    )
    async def list_broker_failures(
        answering: Answering,
        broker: Annotated[
            int | None, Query(ge=0, le=INT32_MAX, description="Only of this broker")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=10_000, description="How many, the newest")] = 100,
    ) -> BrokerFailures:
        """List failures, newest first: what was noticed when, by whom, and what became of it."""
        return await answering.broker_failures(broker, limit)
