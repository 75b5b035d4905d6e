"""Plans: made beside the queue, kept for a while, applied as tasks if nothing changed since.

A plan is worth what it is based on, and that is all in the image; so plans are kept in
memory, with the controller that made them, and a successor makes new ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from leadline_client.errors import (
    InternalError,
    LeadlineError,
    NoController,
    NotFound,
    PolicyViolation,
    ReassignmentInProgress,
    StalePlan,
    UnknownTopic,
)
from leadline_common.reassignments import ReassignmentAlgorithm
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
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.events import Event, Request
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.reassignment.tasks import TaskManager

_log = logging.getLogger(__name__)

PLANS_KEPT = 8
"""How many of the latest plans can be looked at and applied."""


class KnownPlan(msgspec.Struct):
    """A plan that was made at an image version; `tasks` are those that carry it out."""

    id: str
    wanted: PlanRequest
    basis: Basis
    plan: Plan
    version: int
    created_at: int
    tasks: list[str] = []


@dataclass(frozen=True, slots=True, eq=False)
class MakePlan(Request[KnownPlan]):
    """An operator asks for a plan; nothing is changed."""

    wanted: PlanRequest

    @property
    def about(self) -> Mapping[str, Any]:
        """The kind of plan, and the brokers."""
        return {"plan": self.wanted.kind.value, "brokers": self.wanted.brokers}


@dataclass(frozen=True, slots=True, eq=False)
class PlanMade(Event):
    """The thread has come to a plan, or to a refusal; `version` is what it is based on."""

    request: MakePlan
    basis: Basis
    version: int
    outcome: Plan | LeadlineError


@dataclass(frozen=True, slots=True, eq=False)
class ApplyPlan(Request[str]):
    """An operator applies a plan; answered with the id of its first task."""

    plan: str
    algorithm: ReassignmentAlgorithm
    throttle_bytes_per_s: int | None

    @property
    def about(self) -> Mapping[str, Any]:
        """The plan."""
        return {"plan": self.plan}


class PlanManager(EventHandler):
    """The handlers of plans, and the latest plans."""

    def __init__(self, desk: EventContext, tasks: TaskManager, agenda: ReassignmentQueue) -> None:
        self._desk = desk
        self._tasks = tasks
        self._agenda = agenda
        self._plans: dict[str, KnownPlan] = {}
        self._making: dict[MakePlan, asyncio.Task[None]] = {}

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {MakePlan: self.on_make, PlanMade: self.on_made, ApplyPlan: self.on_apply}

    async def close(self) -> None:
        """Give up plans that are still being made."""
        for request, task in self._making.items():
            task.cancel()
            request.refuse(NoController("this controller has just lost its office"))
        await asyncio.gather(*self._making.values(), return_exceptions=True)

    def find(self, plan_id: str) -> KnownPlan:
        """Return a plan.

        Raises:
            NotFound: there is none of this id, or it was dropped since.

        """
        known = self._plans.get(plan_id)
        if known is None:
            raise NotFound(
                f"there is no plan {plan_id!r}: the latest {PLANS_KEPT} are kept, by the "
                "controller that made them; plan again"
            )
        return known

    def is_stale(self, known: KnownPlan) -> bool:
        """Tell whether a plan can no longer be applied."""
        try:
            self._check_fresh(known)
        except LeadlineError:
            return True
        return False

    # -- making ----------------------------------------------------------------

    async def on_make(self, event: MakePlan) -> None:
        """Note what the plan is based on, and make it in a thread of its own.

        Raises:
            UnknownTopic: one of the topics does not exist.
            ReassignmentInProgress: replicas of the topics are being moved.

        """
        basis = plan_basis(self._desk.image, event.wanted.topics)
        busy = sum(entry.topic_partition.topic in basis.topics for entry in self._agenda)
        if busy:
            raise ReassignmentInProgress(
                f"{busy} partitions are being reassigned: plan when they have arrived, or for "
                "other topics"
            )
        made = self._make(event, basis, self._desk.image.version)
        self._making[event] = asyncio.create_task(made)

    async def _make(self, request: MakePlan, basis: Basis, version: int) -> None:
        outcome: Plan | LeadlineError
        try:
            outcome = await asyncio.to_thread(make_plan, request.wanted, basis)
        except LeadlineError as refusal:
            outcome = refusal
        except Exception:
            _log.exception("a plan could not be made")
            outcome = InternalError("the plan could not be made; the log says why")
        now_ms = self._desk.office.clock.monotonic_ms()
        self._desk.post(
            PlanMade(
                cause=request.cause,
                at_ms=now_ms,
                request=request,
                basis=basis,
                version=version,
                outcome=outcome,
            )
        )

    async def on_made(self, event: PlanMade) -> None:
        """Keep a plan and return it; the audit says that somebody planned."""
        request, outcome = event.request, event.outcome
        self._making.pop(request, None)
        if isinstance(outcome, LeadlineError):
            request.refuse(outcome)
            await self._desk.tell_of(request, "refused", outcome.message)
            return
        office = self._desk.office
        plan_id, now_ms = office.new_id(), office.clock.wall_ms()
        known = KnownPlan(plan_id, request.wanted, event.basis, outcome, event.version, now_ms)
        self._plans[plan_id] = known
        while len(self._plans) > PLANS_KEPT:
            del self._plans[next(iter(self._plans))]
        request.settle(known)
        await self._desk.tell_of(request, "dry_run")

    # -- applying --------------------------------------------------------------

    async def on_apply(self, event: ApplyPlan) -> None:
        """Make tasks of a plan: one, unless it is too large for one ZooKeeper node.

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
            task = await self._tasks.submit(wanted)
            known.tasks.append(task.id)
        event.settle(known.tasks[0])

    def _check_fresh(self, known: KnownPlan) -> None:
        if known.tasks:
            raise StalePlan(f"plan {known.id} was applied already, by task {known.tasks[0]}")
        try:
            now = plan_basis(self._desk.image, known.wanted.topics)
        except UnknownTopic as gone:
            raise StalePlan(f"{gone.message} any more: plan again") from None
        check_fresh(known.basis, now)
