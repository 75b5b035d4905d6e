"""Brokers that stop or fail.

An operator checks whether a broker can stop, and drains it. The replicas of failed brokers are
healed (KIP-46), and the history of both can be read.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from fastapi import Query
from pydantic import BaseModel, Field

from leadline_client.errors import (
    BrokerInUse,
    HistoryUnavailable,
    NotFound,
    PolicyViolation,
    ReassignmentInProgress,
)
from leadline_common.api.models import TopicPartitionBody, example
from leadline_common.api.routes import (
    CONTINUES,
    BrokerId,
    Limit,
    dry_run,
    route,
)
from leadline_common.api.tasks import Rate, TaskBody
from leadline_common.elections import StopRisk
from leadline_common.failed_brokers import FailureState
from leadline_common.settings.fields import INT32_MAX

HEALING_TAG = "self-healing"

_FAILED = {
    "id": 3,
    "state": "healing",
    "waits_for": None,
    "failed_at": 1767225600000,
    "due_at": None,
    "incarnation": 4,
    "detected_in_controller_epoch": 2,
    "partitions": 50,
    "partitions_moved": 110,
    "chunks": ["0000000012"],
    "chunks_queued": 4,
    "queued_at": 1767226200004,
    "healed_at": None,
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


_PLANNED = dry_run(
    TaskBody,
    id=None,
    kind="drain",
    state="accepted",
    partitions={"total": 12, "done": 0, "failed": 0, "moving": 0, "waiting": 12},
    bytes_left=0,
    bytes_total=0,
    rate_bytes_per_s=0,
    eta_ms=None,
    reason="drain of broker 1",
    details={"broker": 1, "leaders_only": False, "leaders": 4, "leaders_that_stay": 0},
)


class BrokerAdministration(Protocol):
    """What a controller answers about taking brokers out of service."""

    @route("GET /brokers/{broker_id}/can-stop", "Check whether a broker can stop", NotFound)
    async def can_stop(self, broker_id: BrokerId) -> CanStop:
        """Return the risks of stopping a broker now, and change nothing.

        `no_successor`: the broker leads the partition, and no other ISR member can.
        `offline`: the partition has no leader, and needs a broker like this one to get one.
        `below_min_insync`: produce requests with acks=all would be refused.
        `under_replicated`: another replica is already missing. Brokers that are shutting
        down count as stopped, so in a rolling restart check before each broker.
        """

    @route(
        "POST /brokers/{broker_id}/drain",
        "Drain a broker",
        NotFound,
        PolicyViolation,
        ReassignmentInProgress,
        status_code=202,
        response_description=CONTINUES,
        other=_PLANNED,
    )
    async def drain(self, broker_id: BrokerId, wanted: DrainBody) -> TaskBody:
        """Start a task that moves all leaders, then all replicas, off a broker.

        Leaders move at once where another ISR member can lead, and do not return while the
        task lasts. The replicas follow by a reassignment with as few moves as possible,
        under the limits and the throttle of reassignments. Cancelling the task (`DELETE
        /v1/tasks/{task_id}`) reverts unfinished moves. A dry run answers 200; its `details`
        count the leaders that would move, and those that must wait for their replicas.
        """


class FailedBrokerBody(BaseModel):
    """A broker that is down, and what was done about it; times in Unix ms."""

    model_config = example(_FAILED)

    id: int
    state: FailureState = Field(
        description="`waiting`: nothing was done yet. `healing`: its partitions are queued, or "
        "being recreated. `healed`: no replica is left on it. `returned`: it is live, and a chunk "
        "that was running is being finished"
    )
    waits_for: str | None = Field(description="What healing waits for; null if it goes on or ended")
    failed_at: int | None = Field(
        description="When a controller first saw the failure; null if no record says so"
    )
    due_at: int | None = Field(
        description="When healing starts; null once it has, and while self-healing is disabled"
    )
    incarnation: int | None
    detected_in_controller_epoch: int | None
    partitions: int = Field(description="Partitions with a replica on the broker")
    partitions_moved: int = Field(
        description="Partitions that had a replica on the broker when it failed, and no longer have"
    )
    chunks: list[str] = Field(description="Ids of unfinished tasks, in order")
    chunks_queued: int | None = Field(
        description="The number of chunks that were queued; null until all its partitions are"
    )
    queued_at: int | None = Field(description="When the last of its partitions was queued")
    healed_at: int | None = Field(description="When no replica was left on it")


class FailedBrokersBody(BaseModel):
    """All brokers that are down, and whether self-healing is suspended."""

    model_config = example({"suspended": False, "interval_ms": 600000, "brokers": [_FAILED]})

    suspended: bool = Field(
        description="True while more brokers have failed than failed.broker.budget.percent allows"
    )
    interval_ms: int = Field(description="failed.broker.interval.ms; -1 disables self-healing")
    brokers: list[FailedBrokerBody]


class ForgottenBroker(BaseModel):
    """A broker that is no longer shown as down."""

    model_config = example({"id": 3, "failed_at": 1767225600000})

    id: int
    failed_at: int = Field(description="When a controller first saw the failure, in Unix ms")


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

    @route("GET /failed-brokers", "List brokers that are down", name="list_failed_brokers")
    def failed_brokers(self) -> FailedBrokersBody:
        """List the brokers that are down or being healed, with what was done about each.

        A broker is listed until it returns, or is forgotten (`DELETE
        /v1/failed-brokers/{broker_id}`), also when all its replicas are healed.
        """

    @route(
        "DELETE /failed-brokers/{broker_id}",
        "Forget a broker that is down",
        NotFound,
        BrokerInUse,
    )
    async def forget_broker(self, broker_id: BrokerId) -> ForgottenBroker:
        """No longer list a broker as down, because it will not return.

        Refused while the broker is live, or while replicas are assigned to it. If it returns
        nevertheless, it is a broker like any other.
        """

    @route(
        "GET /failed-brokers/history",
        "List broker failures",
        HistoryUnavailable,
        name="list_broker_failures",
        defaults={"broker": None, "limit": 100},
    )
    async def broker_failures(
        self,
        broker: Annotated[
            int | None, Query(ge=0, le=INT32_MAX, description="Only failures of this broker")
        ],
        limit: Limit,
    ) -> BrokerFailures:
        """List failures, newest first, each with its detection, healing and outcome."""
