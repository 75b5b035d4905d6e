"""Reassignments: from bodies to the runtime, and from what it knows to bodies."""

from __future__ import annotations

from leadline_client.wire import TopicPartition
from leadline_common.api.reassignments import (
    BatchRow,
    CancelledReassignment,
    Limits,
    Reassignment,
    ReassignmentBody,
    Reassignments,
)
from leadline_common.api.tasks import Task, TaskPartitions
from leadline_common.tasks import TargetRow, TaskState
from leadline_controller.api.answers import Answers
from leadline_controller.api.tasks import task_view
from leadline_controller.domain.reassignment.machine import ReassignmentState, Wait
from leadline_controller.domain.reassignment.queue import QueuedReassignment, result_of_step
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.reassignment.events import CancelReassignment, SubmitReassignment

_QUEUED = "queued"
_LEADER_LIMIT = "leader_limit"


class ReassignmentAnswers(Answers):
    """Answers `leadline_common.api.reassignments.ReassignmentAdministration`."""

    def reassignments(self, topic: str | None) -> Reassignments:
        """Return the reassignments, all or of one topic."""
        reign = self._controller.reign()
        agenda, limits = reign.reassignments.agenda, reign.reassignments.limits
        agenda.refresh(reign.image, limits)
        entries = sorted(
            (entry for entry in agenda if topic in (None, entry.name.topic)),
            key=lambda entry: entry.name,
        )
        held_up, left = agenda.held_up(limits), reign.progress.by_partition()
        return Reassignments(
            reassignments=[
                _row(entry, left.get(entry.name, 0), is_held_up=entry.name in held_up)
                for entry in entries
            ],
            current_batch=[
                _batch_row(entry.name, entry.facts)
                for entry in entries
                if entry.facts is not None and entry.is_running
            ],
            limits=Limits(
                replica_movements=limits.replica_movements,
                partition_movements=limits.partition_movements,
                leader_movements=limits.leader_movements,
            ),
        )

    async def reassign(self, wanted: ReassignmentBody) -> Task:
        """Accept a reassignment, or with `dry_run` only check it."""
        submission = Submission(
            partitions=tuple(
                TargetRow(row.topic, row.partition, tuple(row.replicas))
                for row in wanted.partitions
            ),
            algorithm=wanted.algorithm,
            throttle_bytes_per_s=wanted.throttle_bytes_per_s,
            retarget=wanted.retarget,
            allow_replication_factor_change=wanted.allow_replication_factor_change,
        )
        task_id = await self._controller.ask(
            SubmitReassignment, wanted=submission, dry_run=wanted.dry_run
        )
        if wanted.dry_run:
            return dry_run_view(submission)
        reign = self._controller.reign()
        return task_view(reign, reign.tasks.book.find(task_id))

    async def cancel_reassignment(self, topic: str, partition: int) -> CancelledReassignment:
        """Send one partition back."""
        name = TopicPartition(topic, partition)
        start = await self._controller.ask(CancelReassignment, name=name)
        return CancelledReassignment(topic=topic, partition=partition, start=list(start))


def _row(entry: QueuedReassignment, bytes_left: int, *, is_held_up: bool) -> Reassignment:
    facts, intent = entry.facts, entry.intent
    action = entry.action
    reason: str | None = None
    if isinstance(action, Wait):
        reason = action.reason.value
    elif is_held_up:
        reason = _LEADER_LIMIT
    elif not entry.is_running:
        reason = _QUEUED
    return Reassignment(
        topic=entry.name.topic,
        partition=entry.name.partition,
        task=intent.task or None,
        algorithm=intent.algorithm,
        start=list(intent.start),
        current=[b for b in facts.replicas if b not in facts.adding] if facts else [],
        target=list(intent.target),
        adding=list(facts.adding) if facts else [],
        removing=list(facts.removing) if facts else [],
        leader=facts.leader if facts else -1,
        state=entry.phase,
        reason=reason,
        waiting_for=list(action.waiting_for) if isinstance(action, Wait) else [],
        bytes_left=bytes_left,
        cancelled=intent.cancelled,
    )


def _batch_row(name: TopicPartition, facts: ReassignmentState) -> BatchRow:
    return BatchRow(
        topic=name.topic,
        partition=name.partition,
        current=[b for b in facts.replicas if b not in facts.adding],
        target=list(result_of_step(facts)),
    )


def dry_run_view(wanted: Submission) -> Task:
    """Show what would be accepted."""
    total = len(wanted.partitions)
    return Task(
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
