"""Plans: what it would take to balance, expand or drain; looked at first, applied by id."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field

from leadline_client.errors import (
    ConnectionLost,
    NoController,
    NotFound,
    PolicyViolation,
    ReassignmentInProgress,
    StalePlan,
    StoreOutcomeUnknown,
    UnknownTopic,
)
from leadline_common.api import tasks
from leadline_common.api.models import BrokerId, example
from leadline_common.api.routes import answering_administration
from leadline_common.http.errors import error_responses, read_only
from leadline_common.reassignments import PlanKind, ReassignmentAlgorithm

TAG = "plans"
TAGS = (
    {"name": TAG, "description": "What it would take to balance, expand or drain the cluster."},
)

_ID = "5b1f0c3a9f0e4d0e8f5a2f6f3c1d7e90"
_FIGURES = {
    "partitions": 1,
    "moves": 1,
    "least_moves": 1,
    "leader_changes": 0,
    "replica_spread_before": 2,
    "replica_spread_after": 1,
    "leader_spread_before": 1,
    "leader_spread_after": 1,
}
_LOAD: dict[str, Any] = {
    "broker": 3,
    "replicas_before": 1,
    "replicas_after": 0,
    "leaders_before": 0,
    "leaders_after": 0,
}
_ROW: dict[str, Any] = {"topic": "orders", "partition": 0, "current": [1, 3], "replicas": [1, 2]}
_PLAN: dict[str, Any] = {
    "id": _ID,
    "kind": "drain",
    "version": 1042,
    "created_at_ms": 1_767_225_600_000,
    "stale": False,
    "tasks": [],
    "figures": _FIGURES,
    "brokers": [_LOAD],
    "partitions": [_ROW],
}

PlanId = Annotated[
    str, Path(description="The plan's id", examples=[_ID], min_length=1, max_length=64)
]


class PlanBody(BaseModel):
    """What to plan. Nothing is changed before the plan is applied."""

    model_config = example({"kind": "balance"})

    kind: PlanKind = Field(
        description="`balance`: equally many replicas and leaders on all. `expand`: new brokers "
        "get their share, others only give. `drain`: brokers give everything, others only take"
    )
    brokers: list[BrokerId] | None = Field(
        default=None,
        min_length=1,
        description="Those to balance over, to expand to, or to drain. Left out: all live ones; "
        "for `expand` the live ones without replicas. `drain` must name them; they may be down",
    )
    exclude: list[BrokerId] = Field(default_factory=list, description="Brokers that get nothing")
    topics: list[str] | None = Field(
        default=None, min_length=1, description="Only these; the others do not count"
    )


class PlanFigures(BaseModel):
    """What a plan costs and brings. A spread is the most minus the least of any broker.

    Spreads are over the live brokers that may get replicas.
    """

    partitions: int = Field(description="Whose list of replicas changes")
    moves: int = Field(description="Replicas that are copied to another broker")
    least_moves: int = Field(description="No plan of this kind needs fewer")
    leader_changes: int = Field(description="Partitions with another preferred leader")
    replica_spread_before: int
    replica_spread_after: int
    leader_spread_before: int
    leader_spread_after: int


class PlannedBroker(BaseModel):
    """One broker's replicas and preferred leaders, before and after."""

    broker: int
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int


class PlannedPartition(BaseModel):
    """A partition's replicas now, and by the plan; the first is to lead."""

    topic: str
    partition: int
    current: list[int]
    replicas: list[int]


class Plan(BaseModel):
    """A plan, and what it is based on."""

    model_config = example(_PLAN)

    id: str
    kind: PlanKind
    version: int = Field(description="The metadata version that it was made at")
    created_at_ms: int
    stale: bool = Field(
        description="Whether it can no longer be applied: it was already, or replicas of its "
        "topics, or the live brokers, have changed since. Leaders and ISRs do not matter"
    )
    tasks: list[str] = Field(description="The tasks that it was applied as")
    figures: PlanFigures
    brokers: list[PlannedBroker]
    partitions: list[PlannedPartition] = Field(description="Those that change")


class PlanApplication(BaseModel):
    """How to carry a plan out."""

    model_config = example({"algorithm": "incremental", "throttle_bytes_per_s": 50_000_000})

    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL
    throttle_bytes_per_s: tasks.Rate | None = Field(
        default=None,
        description="What each broker may send, and receive, for moving replicas; null: no limit",
    )


class PlanAdministration(Protocol):
    """What a controller answers about plans."""

    async def make_plan(self, wanted: PlanBody) -> Plan:
        """Plan, and keep the plan for a while."""

    def plan(self, plan_id: str) -> Plan:
        """Return a plan."""

    async def apply_plan(self, plan_id: str, how: PlanApplication) -> tasks.Task:
        """Carry a plan out, if nothing that it is based on has changed."""


Answering = Annotated[PlanAdministration, Depends(answering_administration)]


def add_routes(router: APIRouter) -> None:
    """Add the routes."""
    _add_making(router)
    _add_applying(router)


def _add_making(router: APIRouter) -> None:
    @router.post(
        "/plans",
        tags=[TAG],
        summary="Plan a balance, an expansion or a drain",
        status_code=201,
        response_description="The plan; nothing else is changed",
        responses=error_responses(
            NoController, PolicyViolation, UnknownTopic, ReassignmentInProgress, ConnectionLost
        ),
    )
    @read_only
    async def make_plan(answering: Answering, body: PlanBody) -> Plan:
        """Plan with the fewest moves, and never more of a partition on a rack than unavoidable.

        The plan is kept by the active controller, among its latest eight. It is bound to
        the replicas and the brokers that it was made for; see `stale`.
        """
        return await answering.make_plan(body)

    @router.get(
        "/plans/{plan_id}",
        tags=[TAG],
        summary="One plan",
        responses=error_responses(NoController, NotFound),
    )
    async def read_plan(answering: Answering, plan_id: PlanId) -> Plan:
        """Read a plan again, and whether it can still be applied."""
        return answering.plan(plan_id)


def _add_applying(router: APIRouter) -> None:
    @router.post(
        "/plans/{plan_id}/apply",
        tags=[TAG],
        summary="Apply a plan",
        status_code=202,
        response_description="Durable: it is carried out, whatever happens to this controller",
        responses=error_responses(
            NoController,
            NotFound,
            PolicyViolation,
            StalePlan,
            ReassignmentInProgress,
            StoreOutcomeUnknown,
            ConnectionLost,
        ),
    )
    async def apply_plan(
        answering: Answering, plan_id: PlanId, body: PlanApplication
    ) -> tasks.Task:
        """Carry a plan out as a reassignment, if nothing that it is based on has changed.

        A very large plan becomes several tasks, of which the first is returned; the
        plan names them all.
        """
        return await answering.apply_plan(plan_id, body)
