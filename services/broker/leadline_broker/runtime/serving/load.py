"""The load of each replica over a window: bytes and records in, bytes out, and size.

A produce or fetch costs three additions; the totals are sampled a few times per window.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.ports import LogStore
from leadline_broker.runtime.replication.partition import Partition, Traffic
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_common.clock import Clock
from leadline_common.slices import slices

_SAMPLES: Final = 6
"""Samples per window; the reported window may be longer than the setting by one interval."""
_NO_TRAFFIC: Final = Traffic()


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """The traffic of one replica within a window, and its size.

    A leader counts what producers append and consumers read; a follower counts what it
    replicates and what consumers read from it.
    """

    topic: str
    topic_id: str
    partition: int
    is_leader: bool
    size_bytes: int
    bytes_in: int
    records_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class BrokerLoadReport:
    """The load of every replica on a broker, and the space on its disk. Times in Unix ms."""

    broker_id: int
    window_start_ms: int
    window_end_ms: int
    disk_total_bytes: int
    disk_free_bytes: int
    partitions: list[ReplicaLoad]


@dataclass(frozen=True, slots=True)
class BrokerLoadTotals:
    """The load of all replicas on a broker, added up. Times in Unix ms."""

    broker_id: int
    window_start_ms: int
    window_end_ms: int
    disk_total_bytes: int
    disk_free_bytes: int
    size_bytes: int
    leaders: int
    replicas: int
    produced_bytes: int
    produced_records: int
    replicated_bytes: int
    fetched_bytes: int


class _Sample(NamedTuple):
    """The totals of the replicas with traffic, at a monotonic time (ms)."""

    at_ms: int
    totals: Mapping[Partition, Traffic]


@dataclass(eq=False)
class LoadMeter:
    """Measures the load of this broker's replicas. Owned by the event loop."""

    broker_id: int
    configuration: Configuration
    replicas: ReplicaManager
    logs: LogStore
    clock: Clock

    def __post_init__(self) -> None:
        self._samples = deque([_Sample(self.clock.monotonic_ms(), {})])

    async def run(self) -> None:
        """Sample the totals periodically; never returns."""
        while True:
            await asyncio.sleep(self.configuration.current.load_window_ms / _SAMPLES / 1000)
            await self.sample()

    async def sample(self) -> None:
        """Sample the totals, and drop samples that are older than the window."""
        now = self.clock.monotonic_ms()
        totals: dict[Partition, Traffic] = {}
        async for some in slices(self.replicas.all()):
            totals.update((p, p.traffic) for p in some if p.traffic != _NO_TRAFFIC)
        self._samples.append(_Sample(now, totals))
        begin = now - self.configuration.current.load_window_ms
        while len(self._samples) > 1 and self._samples[1].at_ms <= begin:
            self._samples.popleft()

    async def report(self) -> BrokerLoadReport:
        """Return the load over the window, or since the start of this broker if that is shorter."""
        total, free = await asyncio.to_thread(self.logs.space)
        now, first = self.clock.monotonic_ms(), self._samples[0]
        end = self.clock.wall_ms()
        rows: list[ReplicaLoad] = []
        async for some in slices(self.replicas.ordered()):
            rows += [_row(p, first.totals.get(p, _NO_TRAFFIC)) for p in some if p in self.replicas]
        return BrokerLoadReport(
            broker_id=self.broker_id,
            window_start_ms=end - (now - first.at_ms),
            window_end_ms=end,
            disk_total_bytes=total,
            disk_free_bytes=free,
            partitions=rows,
        )

    async def totals(self) -> BrokerLoadTotals:
        """Return the load over the same window as `report`, added up."""
        load = await self.report()
        sums: Counter[str] = Counter()
        async for some in slices(load.partitions):
            led = [row for row in some if row.is_leader]
            sums["leaders"] += len(led)
            sums["size_bytes"] += sum(row.size_bytes for row in some)
            sums["produced_bytes"] += sum(row.bytes_in for row in led)
            sums["produced_records"] += sum(row.records_in for row in led)
            sums["replicated_bytes"] += sum(row.bytes_in for row in some if not row.is_leader)
            sums["fetched_bytes"] += sum(row.bytes_out for row in some)
        return BrokerLoadTotals(
            broker_id=load.broker_id,
            window_start_ms=load.window_start_ms,
            window_end_ms=load.window_end_ms,
            disk_total_bytes=load.disk_total_bytes,
            disk_free_bytes=load.disk_free_bytes,
            size_bytes=sums["size_bytes"],
            leaders=sums["leaders"],
            replicas=len(load.partitions),
            produced_bytes=sums["produced_bytes"],
            produced_records=sums["produced_records"],
            replicated_bytes=sums["replicated_bytes"],
            fetched_bytes=sums["fetched_bytes"],
        )


def _row(partition: Partition, before: Traffic) -> ReplicaLoad:
    traffic = partition.traffic
    return ReplicaLoad(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        is_leader=partition.replica.role is Role.LEADER,
        size_bytes=partition.log.size_bytes,
        bytes_in=traffic.bytes_in - before.bytes_in,
        records_in=traffic.records_in - before.records_in,
        bytes_out=traffic.bytes_out - before.bytes_out,
    )
