"""The load of each replica over the last while: what came in, what was read, what it holds.

A request costs three additions; the totals are noted a few times in each window.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.ports import LogStore
from leadline_broker.runtime.replication.partition import Partition, Traffic
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.serving.views import BrokerLoadReport, ReplicaLoad
from leadline_common.clock import Clock

_NOTES: Final = 6
"""How often in a window the totals are noted: by so much a window may be too long."""


class _Note(NamedTuple):
    """The totals of the replicas that ever had any, at a time of the monotonic clock (ms)."""

    at_ms: int
    totals: Mapping[Partition, Traffic]


class LoadMeter:
    """Tells the load of this broker's replicas. Owned by the event loop."""

    def __init__(
        self,
        broker_id: int,
        *,
        configuration: Configuration,
        replicas: ReplicaManager,
        logs: LogStore,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._configuration = configuration
        self._replicas = replicas
        self._logs = logs
        self._clock = clock
        self._notes = deque([_Note(clock.monotonic_ms(), {})])

    async def run(self) -> None:
        """Note the totals again and again, for ever."""
        while True:
            await asyncio.sleep(self._configuration.current.load_window_ms / _NOTES / 1000)
            self.note()

    def note(self) -> None:
        """Note the totals, and let go of notes that no window begins with any more."""
        now = self._clock.monotonic_ms()
        totals = {p: p.traffic for p in self._replicas.all() if p.traffic != Traffic()}
        self._notes.append(_Note(now, totals))
        begin = now - self._configuration.current.load_window_ms
        while len(self._notes) > 1 and self._notes[1].at_ms <= begin:
            self._notes.popleft()

    async def report(self) -> BrokerLoadReport:
        """Return the load since the beginning of the window; right after a start since then."""
        total, free = await asyncio.to_thread(self._logs.space)
        now, first = self._clock.monotonic_ms(), self._notes[0]
        end = self._clock.wall_ms()
        rows = [_row(p, first.totals.get(p, Traffic())) for p in self._replicas.all()]
        return BrokerLoadReport(
            broker_id=self._broker_id,
            window_start_ms=end - (now - first.at_ms),
            window_end_ms=end,
            disk_total_bytes=total,
            disk_free_bytes=free,
            partitions=sorted(rows, key=lambda row: (row.topic, row.partition)),
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
