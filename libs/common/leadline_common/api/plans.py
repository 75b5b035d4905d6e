"""Plans: proposed assignments of replicas to balance, expand or drain, and to apply by id."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import Path
from pydantic import BaseModel, Field

from leadline_client.errors import (
    ComputationsBusy,
    ConnectionLost,
    NotFound,
    PolicyViolation,
    ReassignmentInProgress,
    StalePlan,
    UnknownTopic,
)
from leadline_common.api import tasks
from leadline_common.api.models import BrokerId, PartitionItem, example
from leadline_common.api.routes import CONTINUES, route
from leadline_common.http.errors import read_only
from leadline_common.reassignments import PlanKind, ReassignmentAlgorithm

TAG = "plans"

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
    "down": [3],
    "figures": _FIGURES,
    "brokers": [_LOAD],
    "partitions": [_ROW],
}

MAX_BROKERS = 10_000
MAX_TOPICS = 100_000

PlanId = Annotated[
    str, Path(description="The plan's id", examples=[_ID], min_length=1, max_length=64)
]


class PlanBody(BaseModel):
    """What to plan. Nothing changes until the plan is applied."""

    model_config = example({"kind": "balance"})

    kind: PlanKind = Field(
        description="`balance`: equal numbers of replicas and leaders on all brokers. `expand`: "
        "move a fair share of replicas to new brokers. `drain`: move all replicas off the brokers"
    )
    brokers: list[BrokerId] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_BROKERS,
        description="Brokers to balance over, to expand to, or to drain. Default: all live "
        "brokers; for `expand` the live brokers without replicas. `drain` requires them; they may "
        "be down",
    )
    exclude: list[BrokerId] = Field(
        default_factory=list,
        max_length=MAX_BROKERS,
        description="Brokers that receive no replicas",
    )
    topics: list[str] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TOPICS,
        description="Consider only these topics",
    )


class PlanStats(BaseModel):
    """The cost and the effect of a plan.

    A spread is the highest minus the lowest number on any live broker that may receive
    replicas.
    """

    partitions: int = Field(description="Partitions whose replicas change")
    moves: int = Field(description="Replicas that are copied to another broker")
    least_moves: int = Field(description="The lower bound of moves for this kind of plan")
    leader_changes: int = Field(description="Partitions whose preferred leader changes")
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


class PlannedPartition(PartitionItem):
    """A partition's current and planned replicas, preferred leader first."""

    current: list[int]
    replicas: list[int]


class PlanResponse(BaseModel):
    """A plan, with the metadata version on which it is based."""

    model_config = example(_PLAN)

    id: str
    kind: PlanKind
    version: int = Field(description="The metadata version on which the plan is based")
    created_at_ms: int
    stale: bool = Field(
        description="True if the plan can no longer be applied: it was applied, or replicas of "
        "its topics or the live brokers have changed since. Changes of leaders and ISRs are ignored"
    )
    tasks: list[str] = Field(description="The tasks that apply the plan")
    down: list[int] = Field(
        description="Brokers that are down, and receive no replicas; self-healing or a plan of "
        "kind `drain` moves what they have"
    )
    figures: PlanStats
    brokers: list[PlannedBroker]
    partitions: list[PlannedPartition] = Field(description="The partitions that change")


class PlanApplication(BaseModel):
    """How to apply a plan."""

    model_config = example({"algorithm": "incremental", "throttle_bytes_per_s": 50_000_000})

    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL
    throttle_bytes_per_s: tasks.Throttle = None


class PlanAdministration(Protocol):
    """What a controller answers about plans."""

    @route(
        "POST /plans",
        "Create a plan",
        PolicyViolation,
        UnknownTopic,
        ReassignmentInProgress,
        ConnectionLost,
        ComputationsBusy,
        status_code=201,
        response_description="The plan; the cluster is not changed",
    )
    @read_only
    async def make_plan(self, wanted: PlanBody) -> PlanResponse:
        """Plan a balance, an expansion or a drain with as few moves as possible.

        A plan spreads the replicas of each partition evenly over the racks. The active
        controller keeps its latest eight plans. A plan becomes `stale` when replicas of its
        topics or the live brokers change.
        """

    @route("GET /plans/{plan_id}", "Get a plan", NotFound, name="read_plan")
    def plan(self, plan_id: PlanId) -> PlanResponse:
        """Return a plan, and whether it can still be applied."""

    @route(
        "POST /plans/{plan_id}/apply",
        "Apply a plan",
        NotFound,
        PolicyViolation,
        StalePlan,
        ReassignmentInProgress,
        status_code=202,
        response_description=CONTINUES,
    )
    async def apply_plan(self, plan_id: PlanId, how: PlanApplication) -> tasks.TaskBody:
        """Apply a plan as a reassignment, unless it is stale.

        A very large plan becomes several tasks. The response is the first one, and the plan
        lists all of them.
        """
