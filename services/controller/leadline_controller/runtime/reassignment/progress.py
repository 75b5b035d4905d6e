"""How far the replicas have come that are moving, by what their leaders say in heartbeats.

All of it is for people to look at, and nothing of it survives the controller: the
next heartbeats say it again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.rpc import MovingRow

TASKS_KEPT = 100
"""Of so many tasks it is known how large their replicas are."""
WINDOW_MS = 10_000
"""The rate is that of so much time back from now; what is older is not said of a replica either."""

_Replica: TypeAlias = tuple[TopicPartition, int]


class BytesLeft(msgspec.Struct, frozen=True):
    """What is still to be copied to replicas that are moving now, of how much."""

    left: int
    total: int


class _Said(msgspec.Struct, frozen=True):
    """What a leader said of a replica, when, and the task that moves it."""

    leader: int
    at_ms: int
    task: str
    row: MovingRow


class Progress:
    """What is known of the moving replicas; `task_of` names the task that moves a partition."""

    def __init__(self, task_of: Callable[[TopicPartition], str]) -> None:
        self._task_of = task_of
        self._said: dict[_Replica, _Said] = {}
        self._told_by: dict[int, set[_Replica]] = {}
        self._now_ms = 0
        self._copied: deque[tuple[int, str, int]] = deque()
        self._sizes: dict[str, dict[_Replica, int]] = {}

    def on_heartbeat(self, broker_id: int, rows: Sequence[MovingRow], now_ms: int) -> None:
        """Take in what a broker says of the replicas that copy from it."""
        self._now_ms = now_ms
        told = {(TopicPartition(row.topic, row.partition), row.replica): row for row in rows}
        for replica in self._told_by.get(broker_id, set()) - told.keys():
            said = self._said.get(replica)
            if said is not None and said.leader == broker_id:  # it has caught up, or nearly
                self._copied.append((now_ms, said.task, said.row.bytes_left))
                del self._said[replica]
        for replica, row in told.items():
            known, task = self._said.get(replica), self._task_of(replica[0])
            if known is not None and known.row.bytes_left > row.bytes_left:
                self._copied.append((now_ms, task, known.row.bytes_left - row.bytes_left))
            self._said[replica] = _Said(broker_id, now_ms, task, row)
            self._note_size(task, replica, row.bytes_total)
        self._told_by[broker_id] = set(told)
        while self._copied and self._copied[0][0] < now_ms - WINDOW_MS:
            self._copied.popleft()

    def _note_size(self, task: str, replica: _Replica, size: int) -> None:
        """Note how large a replica of a task is; the tasks heard of last are remembered."""
        sizes = self._sizes.pop(task, {})
        sizes[replica] = size
        self._sizes[task] = sizes
        if len(self._sizes) > TASKS_KEPT:
            del self._sizes[next(iter(self._sizes))]

    def size_of(self, task: str) -> int:
        """Return the bytes of a task's replicas, as far as they were heard of.

        A small one may catch up between two heartbeats.
        """
        return sum(self._sizes.get(task, {}).values())

    def bytes_left(self, task: str | None = None) -> BytesLeft:
        """Return what is left of a task's replicas that are moving, or of all."""
        return self._sum(said for said in self._said.values() if task in (None, said.task))

    def by_partition(self) -> dict[TopicPartition, int]:
        """Return the bytes left for each partition with replicas that are moving."""
        left: dict[TopicPartition, int] = defaultdict(int)
        for (name, _), said in self._said.items():
            left[name] += self._sum([said]).left
        return left

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

    def _sum(self, found: Iterable[_Said]) -> BytesLeft:
        """Add up what was said; a leader that is silent has died, and another one copies."""
        rows = [said.row for said in found if said.at_ms >= self._now_ms - WINDOW_MS]
        return BytesLeft(sum(r.bytes_left for r in rows), sum(r.bytes_total for r in rows))
