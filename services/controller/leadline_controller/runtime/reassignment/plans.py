"""Plans: computed beside the queue, kept for a while, applied as tasks if nothing has changed.

A plan depends on the image alone, so plans are kept in memory and end with the term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from leadline_client.errors import (
    ComputationsBusy,
    InternalError,
    LeadlineError,
    NoController,
    NotFound,
    PolicyViolation,
    ReassignmentInProgress,
    StalePlan,
    UnknownTopic,
)
from leadline_common.access.caller import current_actor
from leadline_common.cause import current_cause
from leadline_common.clock import Clock
from leadline_common.reassignments import ReassignmentAlgorithm
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.planning.plans import Plan
from leadline_controller.domain.planning.requests import (
    Basis,
    PlanRequest,
    check_fresh,
    make_plan,
    plan_basis,
    split_targets,
)
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    ControllerEvent,
    ControllerRequest,
    Reply,
)
from leadline_controller.runtime.engine.refusals import RefusalAudit
from leadline_controller.runtime.reassignment.tasks import TaskManager

logger = structlog.get_logger(__name__)

MAX_COMPUTING = 2
"""Plans that are computed at a time: each takes a thread, which slows the event loop down."""
PLANS_KEPT = 8
"""The number of latest plans that can be read and applied."""


class KnownPlan(msgspec.Struct):
    """A plan computed at an image version; `tasks` are the tasks that execute it."""

    id: str
    wanted: PlanRequest
    basis: Basis
    plan: Plan
    version: int
    created_at: int
    tasks: list[str] = []


@dataclass(frozen=True, slots=True)
class MakePlan(ControllerRequest[KnownPlan]):
    """Compute a plan; nothing is changed."""

    wanted: PlanRequest

    @property
    def resource(self) -> Mapping[str, Any]:
        """The kind of plan, and the brokers."""
        return {"plan": self.wanted.kind.value, "brokers": self.wanted.brokers}


@dataclass(frozen=True, slots=True)
class PlanMade(ControllerEvent):
    """A plan was computed or refused, based on the image `version`."""

    request: MakePlan
    reply: Reply[KnownPlan]
    basis: Basis
    version: int
    outcome: Plan | LeadlineError


@dataclass(frozen=True, slots=True)
class ApplyPlan(ControllerRequest[str]):
    """Apply a plan; answered with the id of its first task."""

    plan: str
    algorithm: ReassignmentAlgorithm
    throttle_bytes_per_s: int | None

    @property
    def resource(self) -> Mapping[str, Any]:
        """The plan."""
        return {"plan": self.plan}


@dataclass(eq=False)
class PlanManager(EventHandler):
    """Handles plans, and holds the latest ones."""

    image: ClusterImage
    queue: EventQueue
    refusals: RefusalAudit
    clock: Clock
    new_id: Callable[[], str]
    tasks: TaskManager
    reassignments: ReassignmentQueue
    _plans: dict[str, KnownPlan] = field(default_factory=dict, init=False)
    _computing: set[Reply[KnownPlan]] = field(default_factory=set, init=False)

    async def close(self) -> None:
        """Cancel the plans that are being computed, and refuse their requests."""
        for reply in self._computing:
            reply.refuse(NoController("this controller has just lost its leadership"))
        await super().close()

    def find(self, plan_id: str) -> KnownPlan:
        """Return a plan.

        Raises:
            NotFound: there is none of this id, or it is no longer kept.

        """
        known = self._plans.get(plan_id)
        if known is None:
            raise NotFound(
                f"there is no plan {plan_id!r}: the latest {PLANS_KEPT} are kept, by the "
                "controller that made them; plan again"
            )
        return known

    def is_stale(self, known: KnownPlan) -> bool:
        """Return whether a plan can no longer be applied."""
        try:
            self._check_fresh(known)
        except LeadlineError:
            return True
        return False

    # -- computing -------------------------------------------------------------

    @MakePlan.handler
    async def on_make(self, event: MakePlan, reply: Reply[KnownPlan]) -> None:
        """Note what the plan is based on, and compute it in a thread.

        Raises:
            UnknownTopic: one of the topics does not exist.
            ReassignmentInProgress: replicas of the topics are being moved.
            ComputationsBusy: too many plans are being computed.

        """
        if len(self._computing) >= MAX_COMPUTING:
            raise ComputationsBusy(f"{MAX_COMPUTING} plans are being computed: try again")
        basis = plan_basis(self.image, event.wanted.topics)
        busy = sum(entry.topic_partition.topic in basis.topics for entry in self.reassignments)
        if busy:
            raise ReassignmentInProgress(
                f"{busy} partitions are being reassigned: plan when they have arrived, or for "
                "other topics"
            )
        made = self._compute(event, reply, basis, self.image.version)
        self._computing.add(reply)
        self.run_in_background(made, "plan")

    async def _compute(
        self, request: MakePlan, reply: Reply[KnownPlan], basis: Basis, version: int
    ) -> None:
        outcome: Plan | LeadlineError
        try:
            outcome = await asyncio.to_thread(make_plan, request.wanted, basis)
        except LeadlineError as refusal:
            outcome = refusal
        except Exception:
            logger.exception("plan not computed")
            outcome = InternalError("the plan could not be made; the log says why")
        self.queue.post(PlanMade(request, reply, basis, version, outcome), current_cause())

    @PlanMade.handler
    async def on_made(self, event: PlanMade) -> None:
        """Keep a plan and answer with it; the audit records the request."""
        outcome = event.outcome
        self._computing.discard(event.reply)
        if isinstance(outcome, LeadlineError):
            event.reply.refuse(outcome)
            await self.refusals.record(event.request, "refused", outcome.message, outcome.code)
            return
        plan_id, now_ms = self.new_id(), self.clock.wall_ms()
        wanted = event.request.wanted
        known = KnownPlan(plan_id, wanted, event.basis, outcome, event.version, now_ms)
        self._plans[plan_id] = known
        while len(self._plans) > PLANS_KEPT:
            del self._plans[next(iter(self._plans))]
        event.reply.settle(known)
        await self.refusals.record(event.request, "dry_run")

    # -- applying --------------------------------------------------------------

    @ApplyPlan.handler
    async def on_apply(self, event: ApplyPlan, reply: Reply[str]) -> None:
        """Submit a plan as tasks: one, unless it is too large for one ZooKeeper node.

        Raises:
            NotFound: there is no such plan.
            StalePlan: it was applied already, or what it is based on has changed.
            PolicyViolation: it moves nothing.
            Refused: as for any reassignment.

        """
        known = self.find(event.plan)
        self._check_fresh(known)
        parts = list(split_targets(known.plan.targets))
        if not parts:
            raise PolicyViolation("the plan moves nothing: everything is where it should be")
        for number, rows in enumerate(parts, 1):
            wanted = Submission(
                partitions=tuple(rows),
                kind="plan",
                actor=current_actor(),
                reason=f"{known.plan.kind} {known.id}",
                algorithm=event.algorithm,
                throttle_bytes_per_s=event.throttle_bytes_per_s,
                details={
                    "plan": known.id,
                    "kind": known.plan.kind.value,
                    "part": number,
                    "parts": len(parts),
                },
            )
            task = await self.tasks.submit(wanted)
            known.tasks.append(task.id)
        reply.settle(known.tasks[0])

    def _check_fresh(self, known: KnownPlan) -> None:
        if known.tasks:
            raise StalePlan(f"plan {known.id} was applied already, by task {known.tasks[0]}")
        try:
            now = plan_basis(self.image, known.wanted.topics)
        except UnknownTopic as gone:
            raise StalePlan(f"{gone.message} any more: plan again") from None
        check_fresh(known.basis, now)
