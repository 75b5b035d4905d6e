"""What can happen to the partitions of topics that exist: some are added, some removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leadline_controller.runtime.engine.events import Event, Hint, Request


@dataclass(frozen=True, slots=True)
class PartitionIntentsChanged(Hint):
    """A watch on the orders for single partitions fired."""


@dataclass(frozen=True, slots=True)
class PartitionsStopped(Event):
    """Every live broker has stopped, and deleted, the leaving partitions of a topic."""

    topic: str


@dataclass(frozen=True, slots=True, eq=False)
class AddPartitions(Request[Mapping[int, tuple[int, ...]]]):
    """An operator wants a topic to have `total` partitions; answered with the new ones' replicas.

    `replica_assignment` None has them placed.
    """

    topic: str
    total: int
    replica_assignment: Mapping[int, tuple[int, ...]] | None
    dry_run: bool

    @property
    def about(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.topic}


@dataclass(frozen=True, slots=True, eq=False)
class RemovePartitions(Request[tuple[int, ...]]):
    """An operator removes partitions; answered with them once the order is durable."""

    topic: str
    partitions: tuple[int, ...]
    dry_run: bool

    @property
    def about(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.topic}
