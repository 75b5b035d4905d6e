"""What can happen to reassignments and to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leadline_client.wire import TopicPartition
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.engine.events import Hint, Request, about_partitions


@dataclass(frozen=True, slots=True)
class IntentsChanged(Hint):
    """A watch on tasks or intents fired: somebody may have written some by hand."""


@dataclass(frozen=True, slots=True)
class TasksDue(Hint):
    """A task was written by hand, maybe, or the last partition of one has arrived."""


@dataclass(frozen=True, slots=True)
class AgentWakes(Hint):
    """Something that a reassignment waits for may have happened."""


@dataclass(frozen=True, slots=True, eq=False)
class SubmitReassignment(Request[str]):
    """An operator asks for a reassignment; answered with the task's id once it is durable.

    A dry run is only checked, and answered with an empty id.
    """

    wanted: Submission
    dry_run: bool

    @property
    def about(self) -> Mapping[str, Any]:
        """The partitions."""
        return about_partitions(self.wanted.partitions)


@dataclass(frozen=True, slots=True, eq=False)
class CancelReassignment(Request[tuple[int, ...]]):
    """An operator cancels one partition's; answered with the start list that it goes back to."""

    name: TopicPartition

    @property
    def about(self) -> Mapping[str, Any]:
        """The partition."""
        return about_partitions([self.name])


@dataclass(frozen=True, slots=True, eq=False)
class CancelTask(Request[None]):
    """An operator cancels what is left of a task."""

    task: str

    @property
    def about(self) -> Mapping[str, Any]:
        """The task."""
        return {"task": self.task}


@dataclass(frozen=True, slots=True, eq=False)
class ThrottleTask(Request[None]):
    """An operator changes a task's throttle, in bytes per second; None lifts it."""

    task: str
    bytes_per_s: int | None

    @property
    def about(self) -> Mapping[str, Any]:
        """The task."""
        return {"task": self.task}
