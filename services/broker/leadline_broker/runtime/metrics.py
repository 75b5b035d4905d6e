"""The metrics of a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.runtime.partition_metrics import Limits, ReplicaMetrics, ReplicaSource
from leadline_broker.runtime.replication.flusher import FlushedGroup
from leadline_common.metrics import Metrics

_GROUP_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
_RECORD_BUCKETS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_BYTE_BUCKETS = tuple(1024 * 4**power for power in range(10))

BrokerGauge = Literal[
    "late_roles",
    "producers",
    "fetch_sessions",
    "staged_bytes",
    "parked_produces",
    "moving_throttle_bytes",
    "lease_left_seconds",
    "clock_ahead_seconds",
]


class BrokerMetrics:
    """The counters, histograms and gauges of a broker."""

    def __init__(self, metrics: Metrics, limits: Limits) -> None:
        self._metrics = metrics
        self.replicas = ReplicaMetrics(limits)
        metrics.add(self.replicas)
        self._records_in = metrics.counter("records_in", "Records appended as leader.")
        self._bytes_in = metrics.counter("bytes_in", "Bytes appended as leader.")
        self._produces = metrics.counter("produces", "Produce requests that appended.")
        self.held = metrics.counter(
            "produces_held",
            "Batches of idempotent producers that came before their predecessor and waited for it.",
        )
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
        for kind in ("shrink", "expand"):
            self._isr.labels(kind)  # From 0 on, so that the first change is an increase.
        self._truncated = metrics.counter(
            "truncated_records",
            "Records that followers have removed because their leaders lack them. Committed ones "
            "only after an unclean election, or if a leader has lost records.",
            ("kind",),
        )
        for kind in ("committed", "uncommitted"):
            self._truncated.labels(kind)
        self.damaged = metrics.counter(
            "damaged_batches_found",
            "Reads that met a damaged batch and began its repair, or another attempt at it.",
        )
        self.scrubbed = metrics.counter(
            "scrubbed_bytes",
            "Bytes of closed segments that were read from the disk to find damage.",
        )
        self.repaired = metrics.counter(
            "damaged_batches_repaired",
            "Damaged batches that a copy of another in-sync replica has replaced.",
        )
        self._declare_flushes(metrics)
        self._declare_stages(metrics)
        self._declare_gauges(metrics)

    def _declare_flushes(self, metrics: Metrics) -> None:
        self._flush_groups = metrics.histogram(
            "flush_group_logs", "Logs fsynced in one group.", buckets=_GROUP_BUCKETS
        )
        self._flush_seconds = metrics.histogram(
            "flush_group_seconds", "Time to fsync one group of logs, side by side."
        )
        self._flush_records = metrics.histogram(
            "flush_group_records", "Records fsynced in one group.", buckets=_RECORD_BUCKETS
        )
        self._flush_bytes = metrics.histogram(
            "flush_group_bytes", "Bytes fsynced in one group.", buckets=_BYTE_BUCKETS
        )
        self._fsync_seconds = metrics.histogram("fsync_seconds", "Time to fsync one log.")

    def _declare_stages(self, metrics: Metrics) -> None:
        produce = metrics.histogram(
            "produce_stage_seconds",
            "Time of each stage of a produce request: check of the batches, append to the log, and "
            "with acks=all the wait until every member of the ISR has fsynced them.",
            ("stage",),
        )
        self.check_seconds = produce.labels("check")
        self.append_seconds = produce.labels("append")
        self.replicate_seconds = produce.labels("replicate")
        fetch = metrics.histogram(
            "fetch_stage_seconds",
            "Time of each stage of a consumer's fetch: read of the log, and the wait for records "
            "that the consumer asked for.",
            ("stage",),
        )
        self.read_seconds = fetch.labels("read")
        self.wait_seconds = fetch.labels("wait")

    def _declare_gauges(self, metrics: Metrics) -> None:
        """Declare gauges; they are 0 until they have a reading (`read_from`, `watch`)."""
        self._readings: dict[BrokerGauge, Callable[[], float]] = {}

        def gauge(name: BrokerGauge, meaning: str) -> None:
            def read() -> float:
                reading = self._readings.get(name)
                return 0 if reading is None else reading()

            metrics.gauge_from(name, meaning, read)

        gauge("late_roles", "Granted roles that this broker has not taken.")
        gauge("producers", "Idempotent producers in memory, for each replica.")
        gauge("fetch_sessions", "Fetch sessions of followers.")
        gauge("staged_bytes", "Bytes of staged uploads and of copies of them.")
        gauge("parked_produces", "Produce requests that wait for their records to be committed.")
        gauge(
            "moving_throttle_bytes",
            "Throttle of moving replicas in bytes per second; -1 without one.",
        )
        gauge(
            "lease_left_seconds",
            "Remaining time of the lease, without which this broker must not act as a leader.",
        )
        gauge(
            "clock_ahead_seconds",
            "By how much this broker's clock is ahead of the time that the controller says.",
        )

    def flushed(self, group: FlushedGroup) -> None:
        """Count the fsync of a group of logs."""
        self._flush_groups.observe(len(group.log_seconds))
        self._flush_seconds.observe(group.group_seconds)
        self._flush_records.observe(group.records)
        self._flush_bytes.observe(group.size)
        for seconds in group.log_seconds:
            self._fsync_seconds.observe(seconds)

    def produced(self, topic: str, records: int, size: int) -> None:
        """Count an append of `size` bytes."""
        self._produces.inc()
        self._records_in.inc(records)
        self._bytes_in.inc(size)
        self.replicas.produced(topic, records, size)

    def fetched(self, topic: str, records: int, size: int) -> None:
        """Count a fetch response of `size` bytes."""
        self._fetches.inc()
        self._bytes_out.inc(size)
        self.replicas.fetched(topic, records, size)

    def published(self, *, duplicate: bool) -> None:
        """Count a successful publish."""
        (self._duplicates if duplicate else self._publishes).inc()

    def truncated(self, records: int, committed: int) -> None:
        """Count the records that a follower has removed because its leader lacks them."""
        self._truncated.labels("committed").inc(committed)
        self._truncated.labels("uncommitted").inc(records - committed)

    def isr_changed(self, proposal: IsrProposal, members_before: int) -> None:
        """Count a committed ISR change; a write may also drop only the eligible replicas."""
        if len(proposal.isr) != members_before:
            kind = "shrink" if len(proposal.isr) < members_before else "expand"
            self._isr.labels(kind).inc()

    def read_from(self, readings: Mapping[BrokerGauge, Callable[[], float]]) -> None:
        """Read these gauges from now on."""
        self._readings.update(readings)

    def watch(
        self, replicas: ReplicaSource, readings: Mapping[BrokerGauge, Callable[[], float]]
    ) -> None:
        """Show an engine from now on: its replicas, and the readings of the gauges by name."""
        self.replicas.watch(replicas)
        self.read_from(readings)
