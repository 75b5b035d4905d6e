"""Taking brokers out of service: may one stop, and emptying one before it does."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.responses import Response

from leadline_client.errors import (
    ConnectionLost,
    NoController,
    NotFound,
    PolicyViolation,
    ReassignmentInProgress,
    StoreOutcomeUnknown,
)
from leadline_common.api.models import PartitionName, example
from leadline_common.api.routes import BrokerId, also, answering_administration
from leadline_common.api.tasks import EXAMPLE, Rate, Task
from leadline_common.elections import StopRisk
from leadline_common.http.errors import error_responses

_DRAIN = EXAMPLE | {
    "kind": "drain",
    "reason": "drain of broker 1",
    "details": {"broker": 1, "leaders_only": False},
}
_DRY_RUN = _DRAIN | {
    "id": None,
    "state": "accepted",
    "partitions": {"total": 12, "done": 0, "failed": 0, "moving": 0, "waiting": 12},
    "bytes_left": 0,
    "bytes_total": 0,
    "rate_bytes_per_s": 0,
    "eta_ms": None,
    "details": {"broker": 1, "leaders_only": False, "leaders": 4, "leaders_that_stay": 0},
    "dry_run": True,
}


class RiskRow(BaseModel):
    """One kind of risk, and the partitions that run it."""

    reason: StopRisk
    total: int = Field(description="How many partitions")
    partitions: list[PartitionName] = Field(description="The first of them")


class CanStop(BaseModel):
    """Whether a broker may stop without harm, and what speaks against it."""

    model_config = example(
        {
            "broker": 1,
            "can_stop": False,
            "reasons": [
                {
                    "reason": "below_min_insync",
                    "total": 3,
                    "partitions": [{"topic": "orders", "partition": 4}],
                }
            ],
        }
    )

    broker: int
    can_stop: bool = Field(description="True only if there is no reason against it")
    reasons: list[RiskRow] = Field(description="The worst first; a partition is under one of them")


class DrainBody(BaseModel):
    """How to empty a broker."""

    model_config = example({"throttle_bytes_per_s": 50_000_000})

    throttle_bytes_per_s: Rate | None = Field(
        default=None, description="What each broker may send, and receive, for moving replicas"
    )
    leaders_only: bool = Field(
        default=False, description="Keep the replicas; leaders stay away until it is cancelled"
    )
    dry_run: bool = Field(default=False, description="Only plan, and begin nothing")


class BrokerAdministration(Protocol):
    """What a controller answers about taking brokers out of service."""

    def can_stop(self, broker_id: int) -> CanStop:
        """Tell whether a broker may stop without harm."""

    async def drain(self, broker_id: int, wanted: DrainBody) -> Task:
        """Begin to empty a broker, or with `dry_run` only plan it."""


Answering = Annotated[BrokerAdministration, Depends(answering_administration)]
_PLANNED = Task.model_validate(_DRY_RUN)


def add_routes(router: APIRouter, tag: str) -> None:
    """Add the routes under `tag`."""
    _add_can_stop(router, tag)
    _add_drain(router, tag)


def _add_can_stop(router: APIRouter, tag: str) -> None:
    @router.get(
        "/brokers/{broker_id}/can-stop",
        tags=[tag],
        summary="May a broker stop?",
        responses=error_responses(NoController, NotFound),
    )
    async def can_stop(answering: Answering, broker_id: BrokerId) -> CanStop:
        """Find out what stopping a broker now would do; nothing is changed.

        `no_successor`: partitions that it leads, and no other member of the ISR could.
        `offline`: without a leader, and waiting for brokers like this one.
        `below_min_insync`: acks=all would be refused. `under_replicated`: another
        replica is missing already. Brokers that are about to stop count as gone, so
        ask again for each broker of a rolling restart.
        """
        return answering.can_stop(broker_id)


def _add_drain(router: APIRouter, tag: str) -> None:
    @router.post(
        "/brokers/{broker_id}/drain",
        tags=[tag],
        summary="Empty a broker",
        status_code=202,
        response_description="Durable: it goes on whatever happens to this controller",
        responses=also(200, Task, "What a dry run would do", _PLANNED)
        | error_responses(
            NoController,
            NotFound,
            PolicyViolation,
            ReassignmentInProgress,
            StoreOutcomeUnknown,
            ConnectionLost,
        ),
    )
    async def drain(
        answering: Answering, broker_id: BrokerId, body: DrainBody, response: Response
    ) -> Task:
        """Take all leaders off a broker, then all replicas: a task.

        Leaders leave at once, where another member of the ISR can lead, and are not
        given back while the task lasts. The replicas follow by a reassignment with as
        few moves as possible, under the limits and the throttle of reassignments.
        Cancelling the task (`DELETE /v1/tasks/{task_id}`) sends back what is half-way.
        A dry run answers 200, and counts in `details` the leaders that would move, and
        those that cannot before their replicas do.
        """
        task = await answering.drain(broker_id, body)
        if task.dry_run:
            response.status_code = 200
        return task
