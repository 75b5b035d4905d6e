"""Follows leadership through metadata snapshots, and describes each change. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from leadline_cli.output import numbers
from leadline_client.wire import NO_LEADER, Metadata, PartitionInfo


@dataclass(slots=True)
class LeadershipTracker:
    """The leaders of a topic's partitions, and the active controller as (id, epoch).

    `killed_at` has the time in seconds at which a broker was killed, by broker id. `moves` and
    `controller_moves` count changes of leader and of controller.
    """

    topic: str
    killed_at: dict[int, float] = field(default_factory=dict)
    partitions: tuple[PartitionInfo, ...] = ()
    controller: tuple[int, int] | None = None
    moves: int = 0
    controller_moves: int = 0

    def led_by(self, broker: int) -> list[int]:
        """Return the partitions that a broker leads."""
        return [row.partition for row in self.partitions if row.leader == broker]

    def busiest(self) -> int:
        """Return the broker that leads the most partitions; of several, the lowest id."""
        leaders = sorted({row.leader for row in self.partitions} - {NO_LEADER})
        return max(leaders, key=lambda broker: len(self.led_by(broker)))

    def settled(self) -> bool:
        """Tell whether every partition is led by a broker that was not killed."""
        return all(
            row.leader != NO_LEADER and row.leader not in self.killed_at for row in self.partitions
        )

    def update(self, snapshot: Metadata, now_s: float) -> list[str]:
        """Apply a snapshot; return a sentence for each change, with its reason."""
        changes = self._controller_change(snapshot)
        topic = snapshot.topics.get(self.topic)
        if topic is None:
            return changes
        before = {row.partition: row for row in self.partitions}
        self.partitions = topic.partitions
        for row in topic.partitions:
            old = before.get(row.partition)
            if old is not None and old.leader != row.leader:
                self.moves += 1
                changes.append(self._move(old, row, now_s))
            elif old is not None and old.isr != row.isr:
                changes.append(_isr_change(old, row))
        return changes

    def _controller_change(self, snapshot: Metadata) -> list[str]:
        if snapshot.controller is None:
            return []
        found = (snapshot.controller.id, snapshot.controller.epoch)
        before, self.controller = self.controller, found
        if before is None or before == found:
            return []
        self.controller_moves += 1
        epochs = f"epoch {before[1]} → {found[1]}"
        return [f"controller {found[0]} is active, {epochs}: controller {before[0]} is gone"]

    def _move(self, old: PartitionInfo, row: PartitionInfo, now_s: float) -> str:
        epochs = f"epoch {old.leader_epoch} → {row.leader_epoch}"
        if row.leader == NO_LEADER:
            return f"partition {row.partition}: leader {old.leader} → none, {epochs}"
        why = f"first live replica of the ISR ({numbers(old.isr)})"
        killed_s = self.killed_at.get(old.leader)
        if killed_s is not None:
            why = f"broker {old.leader} dead, {why}, {now_s - killed_s:.2f} s after the kill"
        return f"partition {row.partition}: leader {old.leader} → {row.leader}, {epochs}: {why}"


def _isr_change(old: PartitionInfo, row: PartitionInfo) -> str:
    return f"partition {row.partition}: in sync {numbers(old.isr)} → {numbers(row.isr)}"
