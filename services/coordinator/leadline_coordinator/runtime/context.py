"""What every part of one term of office works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leadline_common.clock import Clock
from leadline_common.leader_election import LeadershipTerm
from leadline_common.settings import CoordinatorSettings
from leadline_coordinator.runtime.metrics import CoordinatorMetrics
from leadline_coordinator.runtime.ports import BrokerClient, CoordinatorStore


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """The session that won, under which epoch, and the means: clock and ids are given."""

    store: CoordinatorStore
    brokers: BrokerClient
    term: LeadershipTerm
    settings: CoordinatorSettings
    clock: Clock
    metrics: CoordinatorMetrics
    new_id: Callable[[], str]
