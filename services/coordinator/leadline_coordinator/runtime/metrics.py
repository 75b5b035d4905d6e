"""What a coordinator counts and measures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from leadline_common.metrics import Metrics


class CoordinatorMetrics(Metrics):
    """The metrics of one coordinator process, active or standby."""

    def __init__(self) -> None:
        super().__init__()
        self.terms = self.counter("coordinator_terms", "Times that this process became active.")
        self.rebalances = self.counter(
            "coordinator_rebalances", "Rebalances by how they ended.", ("outcome",)
        )
        self.rebalance_seconds = self.histogram(
            "coordinator_rebalance_seconds",
            "From the begin of a rebalance to the last answer to Start.",
        )
        self.stops = self.counter(
            "coordinator_stopped_partitions", "Partitions that consumers were told to stop."
        )
        self.evictions = self.counter(
            "coordinator_evictions", "Consumers put out of their group, by reason.", ("reason",)
        )
        self.commits = self.counter(
            "coordinator_committed_offsets", "Offsets committed, by outcome.", ("outcome",)
        )
        self.commit_seconds = self.histogram(
            "coordinator_commit_write_seconds", "One write of committed offsets to ZooKeeper."
        )
        self.group_members = self.gauge(
            "coordinator_group_members", "Consumers of each group.", ("group",)
        )
        self.group_lag = self.gauge(
            "coordinator_group_lag_records",
            "Records that a group has not committed yet, over all of its partitions.",
            ("group",),
        )

    def forget(self, group: str) -> None:
        """Show a group no longer."""
        for gauge in (self.group_members, self.group_lag):
            with contextlib.suppress(KeyError):
                gauge.remove(group)

    def watch(self, readings: dict[str, tuple[str, Callable[[], float]]]) -> None:
        """Register gauges that are read when someone looks: name to (meaning, reading)."""
        for name, (meaning, read) in readings.items():
            self.gauge_from(f"coordinator_{name}", meaning, read)
