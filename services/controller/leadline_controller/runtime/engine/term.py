"""What every part of one term of office works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leadline_common.clock import Clock
from leadline_common.leader_election import LeadershipTerm
from leadline_common.settings import ControllerSettings
from leadline_common.znodes import ControllerRegistration
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.ports import Store


@dataclass(frozen=True, slots=True)
class Office:
    """The session that won, under which epoch, and the means: clock, ids and chance are given.

    `random_index(n)` returns a number in [0, n).
    """

    store: Store
    registration: ControllerRegistration
    term: LeadershipTerm
    cluster_id: str
    settings: ControllerSettings
    clock: Clock
    metrics: ControllerMetrics
    new_id: Callable[[], str]
    random_index: Callable[[int], int]

    @property
    def actor(self) -> str:
        """Who acts, in audit entries, when nobody asked."""
        return f"controller-{self.registration.id}"
