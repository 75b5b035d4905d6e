"""The events of reassignments, their tasks, and self-healing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leadline_client.wire import TopicPartition
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.engine.events import (
    ControllerRequest,
    DryRunRequest,
    Trigger,
    partitions_resource,
)


class IntentsChanged(Trigger):
    """A watch on reassignment intents fired: an operator may have written some."""


class TasksDue(Trigger):
    """A watch on the tasks fired, or the last partition of a task has reached its target."""


class StepsDue(Trigger):
    """Something that a reassignment waits for may have happened."""


class HealingDue(Trigger):
    """Brokers, configs or chunks have changed, or the interval of a failed broker is over."""


@dataclass(frozen=True, slots=True)
class SubmitReassignment(DryRunRequest[str]):
    """Reassign partitions; answered with the task's id once it is durable.

    The answer to a dry run is an empty id.
    """

    wanted: Submission

    @property
    def resource(self) -> Mapping[str, Any]:
        """The partitions."""
        return partitions_resource(self.wanted.partitions)


@dataclass(frozen=True, slots=True)
class CancelReassignment(ControllerRequest[tuple[int, ...]]):
    """Cancel the reassignment of one partition; answered with the replicas it returns to."""

    topic_partition: TopicPartition

    @property
    def resource(self) -> Mapping[str, Any]:
        """The partition."""
        return partitions_resource([self.topic_partition])


@dataclass(frozen=True, slots=True)
class ForgetBroker(ControllerRequest[int]):
    """Forget a broker that is down; answered with the time of its failure, in Unix ms."""

    broker_id: int

    @property
    def resource(self) -> Mapping[str, Any]:
        """The broker."""
        return {"broker": self.broker_id}


@dataclass(frozen=True, slots=True)
class CancelTask(ControllerRequest[None]):
    """Cancel the rest of a task."""

    task: str

    @property
    def resource(self) -> Mapping[str, Any]:
        """The task."""
        return {"task": self.task}


@dataclass(frozen=True, slots=True)
class ThrottleTask(ControllerRequest[None]):
    """Change a task's throttle, in bytes per second; None removes it."""

    task: str
    bytes_per_s: int | None

    @property
    def resource(self) -> Mapping[str, Any]:
        """The task."""
        return {"task": self.task}
