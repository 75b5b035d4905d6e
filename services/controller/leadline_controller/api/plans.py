"""Plan routes: make, read and apply plans."""

from __future__ import annotations

import msgspec

from leadline_common.api.plans import (
    PlanApplication,
    PlanBody,
    PlannedBroker,
    PlannedPartition,
    PlanResponse,
    PlanStats,
)
from leadline_common.api.tasks import TaskBody
from leadline_controller.api.tasks import find_task
from leadline_controller.domain.planning.requests import PlanRequest
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.reassignment.plans import ApplyPlan, KnownPlan, MakePlan
from leadline_controller.runtime.service import ControllerService


class PlanEndpoints:
    """Implements `leadline_common.api.plans.PlanAdministration`."""

    _controller: ControllerService

    async def make_plan(self, wanted: PlanBody) -> PlanResponse:
        """Make a plan and store it for a limited time."""
        request = PlanRequest(
            wanted.kind,
            brokers=tuple(wanted.brokers or ()),
            excluded=tuple(wanted.exclude),
            topics=None if wanted.topics is None else tuple(wanted.topics),
        )
        known = await self._controller.ask(MakePlan(request))
        return _plan(self._controller.active_controller(), known, is_stale=False)

    def plan(self, plan_id: str) -> PlanResponse:
        """Return a plan."""
        active = self._controller.active_controller()
        known = active.plans.find(plan_id)
        return _plan(active, known, is_stale=active.plans.is_stale(known))

    async def apply_plan(self, plan_id: str, how: PlanApplication) -> TaskBody:
        """Apply a plan if its basis has not changed."""
        task_id = await self._controller.ask(
            ApplyPlan(plan_id, how.algorithm, how.throttle_bytes_per_s)
        )
        return find_task(self._controller, task_id)


def _plan(active: ActiveController, known: KnownPlan, *, is_stale: bool) -> PlanResponse:
    plan = known.plan
    topics = known.basis.topics
    return PlanResponse(
        id=known.id,
        kind=plan.kind,
        version=known.version,
        created_at_ms=known.created_at,
        stale=is_stale,
        tasks=list(known.tasks),
        down=[broker for broker in active.healing.shown() if broker not in active.image.live],
        figures=PlanStats(
            partitions=len(plan.targets),
            moves=plan.moves,
            least_moves=plan.minimum,
            leader_changes=plan.leader_changes,
            replica_spread_before=plan.spread("replicas_before"),
            replica_spread_after=plan.spread("replicas_after"),
            leader_spread_before=plan.spread("leaders_before"),
            leader_spread_after=plan.spread("leaders_after"),
        ),
        brokers=[
            PlannedBroker(broker=broker, **msgspec.structs.asdict(load))
            for broker, load in plan.loads.items()
        ],
        partitions=[
            PlannedPartition(
                topic=topic,
                partition=number,
                current=list(topics[topic][1][number]),
                replicas=list(replicas),
            )
            for (topic, number), replicas in plan.targets.items()
        ],
    )
