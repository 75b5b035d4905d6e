"""Reassignment routes: submit, list and cancel reassignments."""

from __future__ import annotations

from copy import copy

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.access.caller import current_actor, require
from leadline_common.access.rights import Action
from leadline_common.api.reassignments import (
    BatchRow,
    CancelledReassignment,
    LimitsBody,
    Reassignment,
    ReassignmentBody,
    Reassignments,
)
from leadline_common.api.tasks import TaskBody, TaskPartitions
from leadline_common.reassignments import WaitReason
from leadline_common.slices import in_order, slices
from leadline_common.tasks import TargetRow, TaskState
from leadline_controller.api.tasks import find_task
from leadline_controller.domain.reassignment.machine import ReassignmentState, Wait
from leadline_controller.domain.reassignment.queue import QueuedReassignment, replicas_after_step
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.reassignment.events import CancelReassignment, SubmitReassignment
from leadline_controller.runtime.service import ControllerService


class ReassignmentEndpoints:
    """Implements `leadline_common.api.reassignments.ReassignmentAdministration`."""

    _controller: ControllerService

    async def reassignments(self, topic: str | None) -> Reassignments:
        """Return the reassignments of one topic, or of all topics with None."""
        active = self._controller.active_controller()
        await active.agent.refresh()
        return await reassignments_view(active, topic)

    async def reassign(self, wanted: ReassignmentBody) -> TaskBody:
        """Submit a reassignment, or with `dry_run` only validate it."""
        require(Action.OPERATE, "topic", {row.topic for row in wanted.partitions})
        submission = Submission(
            partitions=tuple(
                TargetRow(row.topic, row.partition, tuple(row.replicas))
                for row in wanted.partitions
            ),
            actor=current_actor(),
            algorithm=wanted.algorithm,
            throttle_bytes_per_s=wanted.throttle_bytes_per_s,
            retarget=wanted.retarget,
            allow_replication_factor_change=wanted.allow_replication_factor_change,
        )
        task_id = await self._controller.ask(SubmitReassignment(submission, dry_run=wanted.dry_run))
        if wanted.dry_run:
            return dry_run_view(submission)
        return find_task(self._controller, task_id)

    async def cancel_reassignment(self, topic: str, partition: int) -> CancelledReassignment:
        """Cancel the reassignment of one partition and return it to its start replicas."""
        start = await self._controller.ask(CancelReassignment(TopicPartition(topic, partition)))
        return CancelledReassignment(topic=topic, partition=partition, start=list(start))


async def reassignments_view(active: ActiveController, topic: str | None) -> Reassignments:
    """Describe the reassignments of one topic, or of all topics with None, in turns of the loop.

    They are described as they are in the first turn. Call `refresh` of the agent before.
    """
    queue, limits = active.reassignments, active.agent.limits
    queue.refresh(active.image, limits)
    entries = [copy(entry) for entry in queue if topic in (None, entry.topic_partition.topic)]
    blocked, bytes_left = queue.blocked_by_leader_limit(limits), active.progress.by_partition()
    shown = Reassignments(
        reassignments=[], current_batch=[], limits=LimitsBody(**msgspec.structs.asdict(limits))
    )
    async for some in slices(in_order(entries, lambda entry: entry.topic_partition)):
        for entry in some:
            one = entry.topic_partition
            left = bytes_left.get(one, 0)
            shown.reassignments.append(_row(entry, left, is_blocked=one in blocked))
            if entry.state is not None and entry.is_running:
                shown.current_batch.append(_batch_row(one, entry.state))
    return shown


def _row(entry: QueuedReassignment, bytes_left: int, *, is_blocked: bool) -> Reassignment:
    state, intent = entry.state, entry.intent
    action = entry.action
    reason: str | None = None
    if isinstance(action, Wait):
        reason = action.reason.value
    elif is_blocked:
        reason = WaitReason.LEADER_LIMIT.value
    elif not entry.is_running:
        reason = "queued"
    return Reassignment(
        topic=entry.topic_partition.topic,
        partition=entry.topic_partition.partition,
        task=intent.task or None,
        algorithm=intent.algorithm,
        start=list(intent.start),
        current=[b for b in state.replicas if b not in state.adding] if state else [],
        target=list(intent.target),
        adding=list(state.adding) if state else [],
        removing=list(state.removing) if state else [],
        leader=state.leader if state else -1,
        state=entry.phase,
        reason=reason,
        waiting_for=list(action.waiting_for) if isinstance(action, Wait) else [],
        bytes_left=bytes_left,
        cancelled=intent.cancelled,
    )


def _batch_row(name: TopicPartition, state: ReassignmentState) -> BatchRow:
    return BatchRow(
        topic=name.topic,
        partition=name.partition,
        current=[b for b in state.replicas if b not in state.adding],
        target=list(replicas_after_step(state)),
    )


def dry_run_view(wanted: Submission) -> TaskBody:
    """Return the task that a submission would create."""
    total = len(wanted.partitions)
    return TaskBody(
        id=None,
        kind=wanted.kind,
        state=TaskState.ACCEPTED,
        algorithm=wanted.algorithm,
        throttle_bytes_per_s=wanted.throttle_bytes_per_s,
        partitions=TaskPartitions(total=total, done=0, failed=0, moving=0, waiting=total),
        bytes_left=0,
        bytes_total=0,
        rate_bytes_per_s=0,
        eta_ms=None,
        is_auto_generated=wanted.is_auto_generated,
        actor=wanted.actor,
        cause="",
        reason=wanted.reason,
        created_at_ms=0,
        finished_at_ms=None,
        details=dict(wanted.details),
        dry_run=True,
    )
