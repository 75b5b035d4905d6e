"""The context of one leadership term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leadline_common.clock import Clock
from leadline_common.cluster_time import ClusterTime
from leadline_common.leader_election import LeadershipTerm
from leadline_common.rpc import ControllerRow
from leadline_common.settings import ControllerSettings
from leadline_common.znodes import ControllerRegistration
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.ports import ControllerStore


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The ZooKeeper session that was elected, its epoch, and the controller's dependencies.

    `random_index(n)` returns a number in [0, n). `new_id()` returns a unique topic or plan id.
    `charge_partitions(n)` raises QuotaExceeded if the sender of the request that is being handled
    may not create or delete partitions now.
    """

    store: ControllerStore
    registration: ControllerRegistration
    term: LeadershipTerm
    cluster_id: str
    settings: ControllerSettings
    clock: Clock
    time: ClusterTime
    metrics: ControllerMetrics
    new_id: Callable[[], str]
    random_index: Callable[[int], int]
    charge_partitions: Callable[[int], None]

    @property
    def actor(self) -> str:
        """The actor of audit entries about what nobody requested."""
        return f"controller-{self.registration.id}"

    @property
    def controller(self) -> ControllerRow:
        """This controller, as brokers and clients know it."""
        me = self.registration
        return ControllerRow(me.id, me.url, self.term.epoch, me.internal_url)
