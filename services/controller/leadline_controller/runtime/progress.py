"""How far the replicas have come that are moving, by what their leaders say in heartbeats.

All of it is for people to look at, and nothing of it survives the controller: the
next heartbeats say it again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from leadline_common.rpc import MovingRow
from leadline_controller.domain.cluster import TopicPartition

WINDOW_MS = 10_000
"""The rate is that of so much time back from now."""

_Replica: TypeAlias = tuple[TopicPartition, int]


class BytesLeft(msgspec.Struct, frozen=True):
    """What is still to be copied to replicas that are moving now, of how much."""

    left: int
    total: int


class Progress:
    """What is known of the moving replicas; `task_of` names the task that moves a partition."""

    def __init__(self, task_of: Callable[[TopicPartition], str]) -> None:
        self._task_of = task_of
        self._rows: dict[_Replica, tuple[str, MovingRow]] = {}
        self._told_by: dict[int, set[_Replica]] = {}
        self._copied: deque[tuple[int, str, int]] = deque()
        self._sizes: dict[str, dict[_Replica, int]] = defaultdict(dict)

    def on_heartbeat(self, broker_id: int, rows: Sequence[MovingRow], now_ms: int) -> None:
        """Take in what a broker says of the replicas that copy from it."""
        told = {(TopicPartition(row.topic, row.partition), row.replica): row for row in rows}
        for replica in self._told_by.get(broker_id, set()) - told.keys():
            task, before = self._rows.pop(replica, ("", None))
            if before is not None:  # it has caught up, or its leader has changed: it is no news
                self._copied.append((now_ms, task, before.bytes_left))
        for replica, row in told.items():
            known = self._rows.get(replica)
            task = self._task_of(replica[0])
            if known is not None and known[1].bytes_left > row.bytes_left:
                self._copied.append((now_ms, task, known[1].bytes_left - row.bytes_left))
            self._rows[replica] = (task, row)
            self._sizes[task][replica] = row.bytes_total
        self._told_by[broker_id] = set(told)
        while self._copied and self._copied[0][0] < now_ms - WINDOW_MS:
            self._copied.popleft()

    def bytes_left(self, task: str | None = None) -> BytesLeft:
        """Return what is left of a task's replicas that are moving, or of all."""
        rows = [row for owner, row in self._rows.values() if task in (None, owner)]
        return BytesLeft(sum(r.bytes_left for r in rows), sum(r.bytes_total for r in rows))

    def of_partition(self, name: TopicPartition) -> BytesLeft:
        """Return what is left of one partition's replicas that are moving."""
        rows = [row for (moving, _), (_, row) in self._rows.items() if moving == name]
        return BytesLeft(sum(r.bytes_left for r in rows), sum(r.bytes_total for r in rows))

    def rate(self, task: str, now_ms: int) -> int:
        """Return the bytes per second that were copied for a task lately."""
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
        """Estimate how long a task still takes; `waiting` partitions of it have not begun.

        They are taken to be as large as those that were seen. None while nothing is known.
        """
        rate, sizes = self.rate(task, now_ms), self._sizes.get(task)
        if not rate or not sizes:
            return None
        partitions = len({name for name, _ in sizes})
        expected = self.bytes_left(task).left + waiting * sum(sizes.values()) // partitions
        return expected * 1_000 // rate
