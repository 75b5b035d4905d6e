"""What a client is asked to do, and how it is measured. Standard library only: see `worker.py`."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import Final, Protocol

LINGER_MS: Final = 5
BATCH_BYTES: Final = 1_000_000
"""Leadline's defaults, which every client gets, because the defaults of the others differ."""
MAX_POLL_RECORDS: Final = 500
"""Kafka's `max.poll.records`, and Leadline's."""
READ_AT_ONCE_S: Final = 1.0
MOST_CONSUME_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Work:
    """One measurement: what to send to or read from the partitions of a topic.

    `clients`: how many clients, each with connections of its own, work at once, where it is more
    than one. `per_second`: the pace of records, where there is one.
    """

    topic: str
    partitions: int
    records: int
    value_bytes: int
    clients: int = 1
    per_second: float = 0.0

    @property
    def value(self) -> bytes:
        """The value of every record."""
        return b"x" * self.value_bytes

    @property
    def warm_up(self) -> range:
        """The partitions that get a record each before the measurement begins."""
        return range(self.partitions)


@dataclass(slots=True)
class Stopwatch:
    """Wall time and this process's CPU time from `start` to `stop`, and what was done meanwhile."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    records: int = 0
    value_bytes: int = 0
    latencies_s: list[float] = field(default_factory=list)
    times_s: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Begin, with no garbage of the preparation left."""
        gc.collect()
        self.cpu_s = -time.process_time()
        self.wall_s = -time.perf_counter()

    def stop(self, records: int, value_bytes: int) -> None:
        """End: this many records are acknowledged or read."""
        self.wall_s += time.perf_counter()
        self.cpu_s += time.process_time()
        self.records = records
        self.value_bytes = value_bytes


class Driver(Protocol):
    """A client library, as a program would use it. Every record is acknowledged, or it raises."""

    async def produce(self, work: Work, watch: Stopwatch) -> None:
        """Send all records as fast as one batching producer can."""

    async def produce_many(self, work: Work, watch: Stopwatch) -> None:
        """As `produce`, but by a call for many records where the client has one."""

    async def produce_batches(self, work: Work, watch: Stopwatch) -> None:
        """Send each record as a batch of its own; each client waits before it sends the next."""

    async def send_singly(self, work: Work, watch: Stopwatch) -> None:
        """Send each record alone; each client waits for it before it sends the next."""

    async def send_paced(self, work: Work, watch: Stopwatch) -> None:
        """Send records at a fixed pace; note how long after its due time each is acknowledged."""

    async def consume(self, work: Work, watch: Stopwatch) -> None:
        """Read all records of the topic from the beginning, with one consumer without a group."""

    async def live_in_group(self, work: Work, watch: Stopwatch) -> None:
        """Have `clients` members join a group, one more join, and one leave; note the times."""
