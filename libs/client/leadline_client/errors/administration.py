"""Refusals of administrative requests."""

from __future__ import annotations

from leadline_client.errors.tree import Refused


class TopicDeletionPending(Refused):
    """A topic of this name is still being deleted."""

    code = 40950
    retriable = True


class PartitionRemovalPending(Refused):
    """Partitions of the topic are still being removed."""

    code = 40990
    retriable = True


class ReassignmentInProgress(Refused):
    """The partition is being reassigned already: cancel that first, or retarget it."""

    code = 40980


class TaskIsOver(Refused):
    """The task has ended and can no longer be changed."""

    code = 40981


class StalePlan(Refused):
    """The plan was applied already, or the state that it is based on has changed: plan again."""

    code = 40982


class StaleVersion(Refused):
    """The resource has changed since the version that the request names."""

    code = 41250


class IdempotencyKeyReused(Refused):
    """The Idempotency-Key was used for another request before."""

    code = 42250


class NoController(Refused):
    """No controller is active, or the active one cannot be reached."""

    code = 50350
    retriable = True


class HistoryUnavailable(Refused):
    """This controller cannot read its history now."""

    code = 50357
    retriable = True
