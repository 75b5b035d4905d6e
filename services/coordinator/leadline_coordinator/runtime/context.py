"""What every part of one leadership term works with, and the metrics of the process."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from leadline_client.errors import WrongMemberSecret
from leadline_common.clock import Clock
from leadline_common.cluster_time import ClusterTime
from leadline_common.leader_election import LeadershipTerm
from leadline_common.log_rate import LogRate
from leadline_common.metrics import Metrics
from leadline_common.refusals import RefusalSampler
from leadline_common.settings import CoordinatorSettings
from leadline_coordinator.domain.members import GroupLimits
from leadline_coordinator.runtime.group_metrics import GroupMetrics
from leadline_coordinator.runtime.ports import BrokerClient, CoordinatorStore

_SECRET_BYTES: Final = 32


class CoordinatorMetrics(Metrics):
    """The metrics of one coordinator process, active or standby."""

    def __init__(self, groups_max: int = 1_000) -> None:
        super().__init__()
        self.terms = self.counter(
            "coordinator_terms", "Times this process became the active coordinator."
        )
        self.rebalances = self.counter(
            "coordinator_rebalances", "Rebalances by outcome.", ("outcome",)
        )
        self.rebalance_seconds = self.histogram(
            "coordinator_rebalance_seconds",
            "From the beginning of a rebalance to the last answer to Start.",
        )
        self.stops = self.counter(
            "coordinator_stopped_partitions", "Partitions that consumers were told to stop."
        )
        self.evictions = self.counter(
            "coordinator_evictions", "Members removed from their group, by reason.", ("reason",)
        )
        self.refused_secrets = self.counter(
            "coordinator_refused_member_secrets",
            "Requests in a member's name without its secret, by request.",
            ("request",),
        )
        self.commits = self.counter(
            "coordinator_committed_offsets", "Offsets committed, by outcome.", ("outcome",)
        )
        self.commit_seconds = self.histogram(
            "coordinator_commit_write_seconds", "One write of committed offsets to ZooKeeper."
        )
        self.groups = GroupMetrics(groups_max)
        self.add(self.groups)

    @contextlib.contextmanager
    def refused_secrets_counted(self, request: str) -> Iterator[None]:
        """Count a refusal of a member's secret in the block; `request` is the label."""
        try:
            yield
        except WrongMemberSecret:
            self.refused_secrets.labels(request).inc()
            raise


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """The session that won the election, its term, and the process's dependencies."""

    store: CoordinatorStore
    brokers: BrokerClient
    term: LeadershipTerm
    settings: CoordinatorSettings
    clock: Clock
    time: ClusterTime
    metrics: CoordinatorMetrics
    new_id: Callable[[], str]
    refusals: RefusalSampler = field(default_factory=RefusalSampler)
    failed_writes: LogRate = field(default_factory=LogRate)
    """Each group repeats a write that fails, a few times a second."""
    new_secret: Callable[[], str] = lambda: secrets.token_urlsafe(_SECRET_BYTES)
    """Returns the secret of a new member, which nobody can guess."""
    computing: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="assignment")
    )
    """Where long assignments are computed, one at a time.

    More threads would compute no faster, would take turns from the event loop, and would have to
    come from those that format metrics and resolve names.
    """


def group_limits(settings: CoordinatorSettings) -> GroupLimits:
    """Return the limits of all groups from the settings."""
    return GroupLimits(
        ping_interval_ms=settings.group_ping_interval_ms,
        stop_limit_ms=settings.group_stop_limit_ms,
        evict_limit_ms=settings.group_evict_limit_ms,
        reconnect_grace_ms=settings.group_reconnect_grace_ms,
        static_grace_ms=settings.group_static_grace_ms,
        initial_delay_ms=settings.group_initial_rebalance_delay_ms,
        answer_timeout_ms=settings.rebalance_answer_timeout_ms,
        max_size=settings.group_max_size,
        max_retries=settings.max_rebalance_retries,
    )
