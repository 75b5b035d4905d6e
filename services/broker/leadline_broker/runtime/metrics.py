"""The metrics of a broker."""

from __future__ import annotations

from collections.abc import Callable

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_common.metrics import Metrics

_GROUP_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class BrokerMetrics:
    """The counters, histograms and gauges of a broker."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._records_in = metrics.counter("records_in", "Records appended as leader.")
        self._bytes_in = metrics.counter("bytes_in", "Bytes appended as leader.")
        self._produces = metrics.counter("produces", "Produce requests that appended.")
        self._bytes_out = metrics.counter("bytes_out", "Bytes served to consumers.")
        self.moved_in = metrics.counter(
            "moving_bytes_in", "Bytes fetched for replicas that a reassignment adds to this broker."
        )
        self.moved_out = metrics.counter(
            "moving_bytes_out", "Bytes sent to replicas that a reassignment adds to other brokers."
        )
        self._fetches = metrics.counter("fetches", "Consumer fetch requests served.")
        self._publishes = metrics.counter("publishes", "Application batches published.")
        self._duplicates = metrics.counter(
            "publish_duplicates", "Publishes of batches that were already in the log."
        )
        self.recovered = metrics.counter(
            "staged_recovered", "Staged uploads that a leader copied from another replica."
        )
        self._isr = metrics.counter("isr_changes", "ISR changes written.", ("kind",))
        self.flush_groups = metrics.histogram(
            "flush_group_logs", "Logs fsynced in one group.", buckets=_GROUP_BUCKETS
        )

    def produced(self, records: int, size: int) -> None:
        """Count an append of `size` bytes."""
        self._produces.inc()
        self._records_in.inc(records)
        self._bytes_in.inc(size)

    def fetched(self, size: int) -> None:
        """Count a fetch response of `size` bytes."""
        self._fetches.inc()
        self._bytes_out.inc(size)

    def published(self, *, duplicate: bool) -> None:
        """Count a successful publish."""
        (self._duplicates if duplicate else self._publishes).inc()

    def isr_changed(self, proposal: IsrProposal, members_before: int) -> None:
        """Count a committed ISR change; a write may also drop only the eligible replicas."""
        if len(proposal.isr) != members_before:
            kind = "shrink" if len(proposal.isr) < members_before else "expand"
            self._isr.labels(kind).inc()

    def watch(
        self,
        replicas: ReplicaManager,
        *,
        sessions: Callable[[], int],
        waiting: Callable[[], int],
        throttle: Callable[[], int],
        lease_left_ms: Callable[[], float],
        staged_bytes: Callable[[], int],
        late_roles: Callable[[], int],
        producers: Callable[[], int],
    ) -> None:
        """Register the gauges, which are evaluated when metrics are read."""

        def under_replicated() -> int:
            states = [p.replica.state for p in replicas.led()]
            return sum(len(state.isr) < len(state.assigned) for state in states)

        def largest_lag() -> int:
            return max(
                (p.log.log_end_offset - p.replica.state.high_watermark for p in replicas.led()),
                default=0,
            )

        gauge = self._metrics.gauge_from
        gauge("replicas", "Replicas on this broker.", lambda: len(replicas))
        gauge("leaders", "Partitions that this broker leads.", lambda: len(replicas.led()))
        gauge(
            "under_replicated",
            "Led partitions whose ISR lacks an assigned replica.",
            under_replicated,
        )
        gauge(
            "uncommitted_records_max",
            "Largest difference between log end and high watermark.",
            largest_lag,
        )
        gauge("late_roles", "Granted roles that this broker has not taken.", late_roles)
        gauge("producers", "Idempotent producers in memory, for each replica.", producers)
        gauge("fetch_sessions", "Fetch sessions of followers.", sessions)
        gauge("staged_bytes", "Bytes of staged uploads and of copies of them.", staged_bytes)
        gauge(
            "parked_produces",
            "Produce requests that wait for their records to be committed.",
            waiting,
        )
        gauge(
            "moving_throttle_bytes",
            "Throttle of moving replicas in bytes per second; -1 without one.",
            throttle,
        )
        gauge(
            "lease_left_seconds",
            "Remaining time of the lease, without which this broker must not act as a leader.",
            lambda: lease_left_ms() / 1000,
        )
