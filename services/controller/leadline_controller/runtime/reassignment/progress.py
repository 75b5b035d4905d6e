"""The progress of moving replicas, as leaders report it in heartbeats.

It is only shown to operators. A new controller learns it from the next heartbeats.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.rpc import MovingRow

TASKS_KEPT = 100
"""The number of tasks whose replica sizes are kept."""
WINDOW_MS = 10_000
"""The rate is computed over this time; older reports about a replica are ignored."""

_Replica: TypeAlias = tuple[TopicPartition, int]


class BytesLeft(msgspec.Struct, frozen=True):
    """What is still to be copied to replicas that are moving now, of how much."""

    left: int
    total: int


class _Report(msgspec.Struct, frozen=True):
    """What a leader reported about a replica, when, and the task that moves it."""

    leader: int
    at_ms: int
    task: str
    row: MovingRow


class ReassignmentProgress:
    """The moving replicas; `task_of` returns the task that moves a partition."""

    def __init__(self, task_of: Callable[[TopicPartition], str]) -> None:
        self._task_of = task_of
        self._reports: dict[_Replica, _Report] = {}
        self._reported_by: dict[int, set[_Replica]] = {}
        self._now_ms = 0
        self._copied: deque[tuple[int, str, int]] = deque()
        self._sizes: dict[str, dict[_Replica, int]] = {}

    def on_heartbeat(self, broker_id: int, rows: Sequence[MovingRow], now_ms: int) -> None:
        """Apply a broker's report about the replicas that copy from it."""
        self._now_ms = now_ms
        reported = {(TopicPartition(row.topic, row.partition), row.replica): row for row in rows}
        for replica in self._reported_by.get(broker_id, set()) - reported.keys():
            report = self._reports.get(replica)
            if report is not None and report.leader == broker_id:  # it has (nearly) caught up
                self._copied.append((now_ms, report.task, report.row.bytes_left))
                del self._reports[replica]
        for replica, row in reported.items():
            known, task = self._reports.get(replica), self._task_of(replica[0])
            if known is not None and known.row.bytes_left > row.bytes_left:
                self._copied.append((now_ms, task, known.row.bytes_left - row.bytes_left))
            self._reports[replica] = _Report(broker_id, now_ms, task, row)
            self._keep_size(task, replica, row.bytes_total)
        self._reported_by[broker_id] = set(reported)
        while self._copied and self._copied[0][0] < now_ms - WINDOW_MS:
            self._copied.popleft()

    def _keep_size(self, task: str, replica: _Replica, size: int) -> None:
        """Keep the size of a replica; the tasks that were reported last are kept."""
        sizes = self._sizes.pop(task, {})
        sizes[replica] = size
        self._sizes[task] = sizes
        if len(self._sizes) > TASKS_KEPT:
            del self._sizes[next(iter(self._sizes))]

    def size_of(self, task: str) -> int:
        """Return the bytes of a task's replicas that were reported.

        A small replica may catch up between two heartbeats, and is not reported.
        """
        return sum(self._sizes.get(task, {}).values())

    def bytes_left(self, task: str | None = None) -> BytesLeft:
        """Return the bytes left of a task's moving replicas, or of all."""
        return self._sum(report for report in self._reports.values() if task in (None, report.task))

    def by_partition(self) -> dict[TopicPartition, int]:
        """Return the bytes left for each partition with replicas that are moving."""
        left: dict[TopicPartition, int] = defaultdict(int)
        for (topic_partition, _), report in self._reports.items():
            left[topic_partition] += self._sum([report]).left
        return left

    def rate(self, task: str, now_ms: int) -> int:
        """Return the bytes per second that were recently copied for a task."""
        copied = [
            (at, size)
            for at, owner, size in self._copied
            if owner == task and at >= now_ms - WINDOW_MS
        ]
        if not copied:
            return 0
        elapsed_ms = max(now_ms - copied[0][0], 1_000)
        return sum(size for _, size in copied) * 1_000 // elapsed_ms

    def eta_ms(self, task: str, waiting: int, now_ms: int) -> int | None:
        """Estimate a task's remaining time; `waiting` of its partitions have not begun.

        Those are assumed to be as large as the reported ones. None if nothing is known.
        """
        rate, sizes = self.rate(task, now_ms), self._sizes.get(task)
        if not rate or not sizes:
            return None
        partitions = len({topic_partition for topic_partition, _ in sizes})
        expected = self.bytes_left(task).left + waiting * sum(sizes.values()) // partitions
        return expected * 1_000 // rate

    def _sum(self, found: Iterable[_Report]) -> BytesLeft:
        """Add up recent reports; older ones are those of a former leader."""
        rows = [report.row for report in found if report.at_ms >= self._now_ms - WINDOW_MS]
        return BytesLeft(sum(r.bytes_left for r in rows), sum(r.bytes_total for r in rows))
