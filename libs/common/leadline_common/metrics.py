"""Prometheus metrics of one service, with a registry and a naming style.

No metric is global or in the default registry, so two services in one process, or two tests, never
share a counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from leadline_common.loop_watchdog import LAG
from leadline_common.unreadable import UNREADABLE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS_BUCKETS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Durations from one small request to a whole long poll."""


class Metrics:
    """The metrics of one service; every name gets the prefix `leadline_`.

    Names follow Prometheus: base units in the name (`_seconds`, `_bytes`), and
    counters without `_total`, which the library appends.
    """

    def __init__(self, *, process: bool = True) -> None:
        self.registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
            self.gauge_from(
                "event_loop_lag_seconds",
                "The latest delay of the event loop.",
                lambda: LAG.latest_s,
            )
            self.gauge_from(
                "event_loop_lag_max_seconds",
                "The longest delay of the event loop since the process began.",
                lambda: LAG.longest_s,
            )
            self.gauge_from(
                "unreadable_znodes",
                "Nodes in ZooKeeper that this process could not read, and passes over.",
                lambda: len(UNREADABLE),
            )

    def counter(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
        """Register a value that only grows."""
        return Counter(f"leadline_{name}", meaning, labels, registry=self.registry)

    def gauge(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
        """Register a value that goes up and down."""
        return Gauge(f"leadline_{name}", meaning, labels, registry=self.registry)

    def gauge_from(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Register a gauge whose value is read only at each scrape."""
        self.gauge(name, meaning).set_function(read)

    def histogram(
        self,
        name: str,
        meaning: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = SECONDS_BUCKETS,
    ) -> Histogram:
        """Register a distribution; the buckets suit durations in seconds."""
        return Histogram(
            f"leadline_{name}", meaning, labels, buckets=buckets, registry=self.registry
        )

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
