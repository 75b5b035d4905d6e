"""Taking brokers out of service: checking whether one can stop, and draining it."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.responses import Response

from leadline_client.errors import NotFound, PolicyViolation, ReassignmentInProgress
from leadline_common.api.models import TopicPartitionBody, example
from leadline_common.api.routes import (
    BrokerId,
    get_administration,
    read_errors,
    success_response,
    write_errors,
)
from leadline_common.api.tasks import EXAMPLE, Rate, TaskBody
from leadline_common.elections import StopRisk

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
    """A risk of stopping a broker, and the partitions that have it."""

    reason: StopRisk
    total: int = Field(description="Number of partitions")
    partitions: list[TopicPartitionBody] = Field(description="The first of these partitions")


class CanStop(BaseModel):
    """Whether a broker can stop without harm, and the reasons against it."""

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
    can_stop: bool = Field(description="True if there is no reason against it")
    reasons: list[RiskRow] = Field(
        description="The worst first; each partition is listed under one of them"
    )


class DrainBody(BaseModel):
    """How to drain a broker."""

    model_config = example({"throttle_bytes_per_s": 50_000_000})

    throttle_bytes_per_s: Rate | None = Field(
        default=None,
        description="The rate at which each broker may send, and receive, moving replicas",
    )
    leaders_only: bool = Field(
        default=False,
        description="Keep the replicas; leaders stay off the broker until the task is cancelled",
    )
    dry_run: bool = Field(default=False, description="Plan, but start nothing")


class BrokerAdministration(Protocol):
    """What a controller answers about taking brokers out of service."""

    def can_stop(self, broker_id: int) -> CanStop:
        """Return whether a broker can stop without harm."""

    async def drain(self, broker_id: int, wanted: DrainBody) -> TaskBody:
        """Start to drain a broker; with `dry_run` only plan it."""


Controller = Annotated[BrokerAdministration, Depends(get_administration)]
_PLANNED = TaskBody.model_validate(_DRY_RUN)


def add_routes(router: APIRouter, tag: str) -> None:
    """Add the routes under `tag`."""

    @router.get(
        "/brokers/{broker_id}/can-stop",
        tags=[tag],
        summary="Check whether a broker can stop",
        responses=read_errors(NotFound),
    )
    async def can_stop(controller: Controller, broker_id: BrokerId) -> CanStop:
        """Return the risks of stopping a broker now, and change nothing.

        `no_successor`: the broker leads the partition, and no other ISR member can.
        `offline`: the partition has no leader, and needs a broker like this one to get one.
        `below_min_insync`: produce requests with acks=all would be refused.
        `under_replicated`: another replica is already missing. Brokers that are shutting
        down count as stopped, so in a rolling restart check before each broker.
        """
        return controller.can_stop(broker_id)

    @router.post(
        "/brokers/{broker_id}/drain",
        tags=[tag],
        summary="Drain a broker",
        status_code=202,
        response_description="Accepted, and durable: it continues even if this controller fails",
        responses=success_response(200, TaskBody, "The result of a dry run", _PLANNED)
        | write_errors(NotFound, PolicyViolation, ReassignmentInProgress),
    )
    async def drain(
        controller: Controller, broker_id: BrokerId, body: DrainBody, response: Response
    ) -> TaskBody:
        """Start a task that moves all leaders, then all replicas, off a broker.

        Leaders move at once where another ISR member can lead, and do not return while the
        task lasts. The replicas follow by a reassignment with as few moves as possible,
        under the limits and the throttle of reassignments. Cancelling the task (`DELETE
        /v1/tasks/{task_id}`) reverts unfinished moves. A dry run answers 200; its `details`
        count the leaders that would move, and those that must wait for their replicas.
        """
        task = await controller.drain(broker_id, body)
        if task.dry_run:
            response.status_code = 200
        return task
