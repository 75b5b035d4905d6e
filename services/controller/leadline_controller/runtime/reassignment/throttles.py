"""The rates of moving replicas, as heartbeat responses carry them to each broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from leadline_client.wire import TopicPartition
from leadline_common.rpc import NO_THROTTLE, MovingRate
from leadline_controller.domain.cluster import Change, ClusterImage, TopicGone, TopicSet
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.throttles import (
    Allotment,
    BrokerMovers,
    Ceilings,
    Mover,
    allot,
    lowest,
)
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.reassignment.task_store import TaskStore

HEAL = "heal"
"""The kind of a self-healing task."""


@dataclass(eq=False)
class MovingThrottles:
    """The allotment of every task on every broker, computed again when something has changed.

    While no throttle is set and no ceiling, nothing is computed, however much is moving.
    """

    image: ClusterImage
    reassignments: ReassignmentQueue
    tasks: TaskStore
    configs: DynamicConfigs
    _is_stale: bool = field(default=True, init=False)
    _rates: dict[int, list[MovingRate]] | None = field(default=None, init=False)
    _of_task: dict[str, Allotment] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.image.subscribe(self._on_image_changed)
        for subscribe in (self.reassignments.subscribe, self.tasks.subscribe):
            subscribe(self._invalidate)
        self.configs.subscribe(self._invalidate)

    def _invalidate(self) -> None:
        self._is_stale = True

    def _on_image_changed(self, changes: Sequence[Change]) -> None:
        if any(isinstance(change, TopicSet | TopicGone) for change in changes):
            self._is_stale = True

    def of_broker(self, broker: int) -> list[MovingRate] | None:
        """Return the rates of a broker's moving replicas; None while nothing is throttled."""
        self._update()
        return None if self._rates is None else self._rates.get(broker, [])

    def of_task(self, task: str) -> Allotment:
        """Return a task's allotment on the broker where it is slowest."""
        self._update()
        return self._of_task.get(task, Allotment())

    def _update(self) -> None:
        if self._is_stale:
            self._is_stale = False
            self._rates, self._of_task = None, {}
            if self._is_throttled():
                self._compute()

    @property
    def _ceilings(self) -> Ceilings:
        settings = self.configs.current()
        return Ceilings(
            _limit(settings.reassignment_throttle_bytes_per_s),
            _limit(settings.failed_broker_throttle_bytes_per_s),
        )

    def _is_throttled(self) -> bool:
        return self._ceilings != Ceilings() or any(
            task.node.throttle_bytes_per_s is not None and not task.node.state.is_over
            for task in self.tasks
        )

    def _compute(self) -> None:
        ceilings, found = self._ceilings, self._movers()
        allotments: dict[str, list[Allotment]] = {}
        self._rates = {}
        for broker, by_task in found.items():
            allotted = allot([self._mover(task) for task in by_task], ceilings)
            self._rates[broker] = [
                MovingRate(task, _rate(allotted[task]), {t: [*p] for t, p in topics.items()})
                for task, topics in by_task.items()
            ]
            for task, allotment in allotted.items():
                allotments.setdefault(task, []).append(allotment)
        self._of_task = {task: lowest(of_task) for task, of_task in allotments.items()}

    def _movers(self) -> BrokerMovers:
        """Return the moving replicas of each broker that sends or receives them."""
        found: dict[int, dict[str, dict[str, list[int]]]] = {}
        for name in self.reassignments.topics():
            topic = self.image.topics.get(name)
            if topic is None:
                continue
            for number in topic.assignment.adding:
                task = self.reassignments.task_of(TopicPartition(name, number))
                for broker in topic.assignment.partitions.get(number, ()):
                    topics = found.setdefault(broker, {}).setdefault(task, {})
                    topics.setdefault(topic.topic_id, []).append(number)
        return found

    def _mover(self, task_id: str) -> Mover:
        task = self.tasks.get(task_id)
        if task is None:
            return Mover(task_id)
        return Mover(task_id, task.node.throttle_bytes_per_s, task.node.kind == HEAL)


def _limit(rate: int) -> int | None:
    return None if rate == NO_THROTTLE else rate


def _rate(allotment: Allotment) -> int:
    return NO_THROTTLE if allotment.bytes_per_s is None else allotment.bytes_per_s
