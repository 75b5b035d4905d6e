"""Prometheus metrics of one service, with a registry and a naming style.

No metric is global or in the default registry, so two services in one process, or two tests, never
share a counter.

A scrape has two parts. What the event loop owns is read there (`Metrics.sample`), which is short;
the text is made from it in a thread (`Metrics.format`), because that takes long with many labels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

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
from prometheus_client import (
    Metric as Samples,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from leadline_common.loop_watchdog import LAG
from leadline_common.unreadable import UNREADABLE
from leadline_common.versions import NEWEST_PROTOCOL, OLDEST_PROTOCOL, current_release

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
"""Durations from one small request to the longest one."""

WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
"""Durations of waits: from a short long poll to a stream of an hour."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric as it is served: its whole name, its type, its labels, and what it means."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str

    @property
    def unit(self) -> str:
        """The unit, which is in the name, "" for a number of what the name says."""
        words = self.name.split("_")
        return next((unit for unit in ("seconds", "bytes", "records") if unit in words), "")


Rows = Mapping[Family, Iterable[tuple[Mapping[str, str], float]]]
"""The labels and the value of each sample, by metric."""


class ScrapedMetrics(Collector):
    """Metrics with labels that are computed at each scrape, so that nothing remains of old labels.

    Declare each with `family`, and add the whole with `Metrics.add`. Label values may be anything:
    they are escaped.
    """

    def __init__(self) -> None:
        self.families: list[Family] = []

    def family(
        self,
        kind: Literal["counter", "gauge"],
        name: str,
        meaning: str,
        labels: Sequence[str] = (),
    ) -> Family:
        """Declare a metric; the name is without prefix, a counter's without `_total`."""
        suffix = "_total" if kind == "counter" else ""
        found = Family(f"leadline_{name}{suffix}", kind, tuple(labels), meaning)
        self.families.append(found)
        return found

    @abstractmethod
    def sample(self) -> None:
        """Take what only the event loop may read; called there before each `rows`."""

    @abstractmethod
    def rows(self) -> Rows:
        """Return the samples; called in any thread. A metric without samples may be absent."""

    def collect(self) -> Iterable[Samples]:
        """Return the metrics for the registry."""
        rows = self.rows()
        for family in self.families:
            shown = Samples(family.name.removesuffix("_total"), family.meaning, family.kind)
            shown.samples = [
                Sample(family.name, labels, value)  # type: ignore[arg-type]  # only read
                for labels, value in rows.get(family, ())
            ]
            yield shown


@dataclass(eq=False, slots=True)
class _Reading:
    """A gauge whose value is read on the event loop."""

    gauge: Gauge
    read: Callable[[], float] = field(repr=False)


class Metrics:
    """The metrics of one service; every name gets the prefix `leadline_`.

    Names follow Prometheus: base units in the name (`_seconds`, `_bytes`), and
    counters without `_total`, which the library appends.
    """

    def __init__(self, *, process: bool = True) -> None:
        self.registry = CollectorRegistry()
        self.families: list[Family] = []
        self._readings: list[_Reading] = []
        self._scraped: list[ScrapedMetrics] = []
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
                "event_loop_busy_max_seconds",
                "The most processor time that the event loop has taken during one of its delays.",
                lambda: LAG.longest_busy_s,
            )
            self.gauge_from(
                "unreadable_znodes",
                "Nodes in ZooKeeper that this process could not read, and passes over.",
                lambda: len(UNREADABLE),
            )
            self._declare_build()

    def _declare_build(self) -> None:
        names = ("release", "oldest_protocol", "newest_protocol")
        info = self.gauge("build_info", "1; the labels say what this process is.", names)
        info.labels(current_release(), str(OLDEST_PROTOCOL), str(NEWEST_PROTOCOL)).set(1)

    def counter(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
        """Register a value that only grows."""
        self._declare(f"{name}_total", "counter", meaning, labels)
        return Counter(f"leadline_{name}", meaning, labels, registry=self.registry)

    def gauge(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
        """Register a value that goes up and down."""
        self._declare(name, "gauge", meaning, labels)
        return Gauge(f"leadline_{name}", meaning, labels, registry=self.registry)

    def gauge_from(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Register a gauge whose value is read at each scrape, on the event loop."""
        self._readings.append(_Reading(self.gauge(name, meaning), read))

    def histogram(
        self,
        name: str,
        meaning: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = SECONDS_BUCKETS,
    ) -> Histogram:
        """Register a distribution; the buckets suit durations in seconds."""
        self._declare(name, "histogram", meaning, labels)
        return Histogram(
            f"leadline_{name}", meaning, labels, buckets=buckets, registry=self.registry
        )

    def add(self, scraped: ScrapedMetrics) -> None:
        """Serve metrics that are computed at each scrape."""
        self._scraped.append(scraped)
        self.families += scraped.families
        self.registry.register(scraped)

    def _declare(
        self,
        name: str,
        kind: Literal["counter", "gauge", "histogram"],
        meaning: str,
        labels: Sequence[str],
    ) -> None:
        self.families.append(Family(f"leadline_{name}", kind, tuple(labels), meaning))

    def sample(self) -> None:
        """Read what the event loop owns; call it there."""
        for reading in self._readings:
            reading.gauge.set(reading.read())
        for scraped in self._scraped:
            scraped.sample()

    def format(self) -> bytes:
        """Return what was sampled, and all else, in Prometheus's text format; thread-safe."""
        return generate_latest(self.registry)

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format; call it on the event loop."""
        self.sample()
        return self.format()
