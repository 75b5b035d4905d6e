"""A case of the data path: work that every side does in turn, each in a topic of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from peers.clients.work import Stopwatch, Work
from peers.report.samples import Metric, percentile

RECORD_RATE: Final = Metric("records", "thousand/s", more_is_better=True)
BYTE_RATE: Final = Metric("bytes of values", "MB/s", more_is_better=True)
CLIENT_CPU: Final = Metric("client's CPU", "µs/record")
REQUEST_RATE: Final = Metric("requests", "1/s", more_is_better=True)
MEDIAN_LATENCY: Final = Metric("latency, p50", "ms")
TAIL_LATENCY: Final = Metric("latency, p99", "ms")
EVERY_CLIENT: Final = frozenset({"leadline", "aiokafka", "confluent"})
ASYNCHRONOUS: Final = frozenset({"leadline", "aiokafka"})

Figures = Mapping[Metric, float]


@dataclass(frozen=True, slots=True)
class Case:
    """Work without a topic yet, the method of the driver that does it, and what it yields.

    `reads`: the topic is filled once before the rounds, which only read. Reading is the same
    whether or not records were flushed, so that it has one side less.
    """

    sequence: str
    name: str
    task: str
    work: Work
    figures: Callable[[Stopwatch], Figures]
    clients: frozenset[str] = EVERY_CLIENT
    reads: bool = False


def work(records: int, value_bytes: int, *, clients: int = 1, per_second: float = 0.0) -> Work:
    """Return work on six partitions."""
    return Work("", 6, records, value_bytes, clients, per_second)


def rates(watch: Stopwatch) -> Figures:
    """Return the figures of a client that sends or reads as fast as it can."""
    return {
        RECORD_RATE: watch.records / watch.wall_s / 1e3,
        BYTE_RATE: watch.value_bytes / watch.wall_s / 1e6,
        CLIENT_CPU: watch.cpu_s / watch.records * 1e6,
    }


def byte_rate(watch: Stopwatch) -> Figures:
    """Return the figure of whole batches."""
    return {BYTE_RATE: watch.value_bytes / watch.wall_s / 1e6}


def request_rate(watch: Stopwatch) -> Figures:
    """Return the figure of records that are sent one by one."""
    return {REQUEST_RATE: watch.records / watch.wall_s}


def latencies(watch: Stopwatch) -> Figures:
    """Return the figures of paced records."""
    return {
        MEDIAN_LATENCY: percentile(watch.latencies_s, 0.50) * 1e3,
        TAIL_LATENCY: percentile(watch.latencies_s, 0.99) * 1e3,
    }
