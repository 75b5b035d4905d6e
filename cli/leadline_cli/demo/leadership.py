"""Who leads what, as it changes: snapshots in, sentences out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from leadline_client.wire import NO_LEADER, Metadata, PartitionInfo


@dataclass(slots=True)
class Leadership:
    """What is known of a topic's leaders and the controller; `killed_at` in seconds by broker."""

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
        """Return the broker that leads the most partitions (the lowest id among equals)."""
        leaders = sorted({row.leader for row in self.partitions} - {NO_LEADER})
        return max(leaders, key=lambda broker: len(self.led_by(broker)))

    def settled(self) -> bool:
        """Tell whether every partition is led by a broker that was not killed."""
        return all(
            row.leader != NO_LEADER and row.leader not in self.killed_at for row in self.partitions
        )

    def update(self, snapshot: Metadata, now_s: float) -> list[str]:
        """Take a snapshot; return what changed and why, a sentence for each change."""
        said = self._controller_change(snapshot)
        topic = snapshot.topics.get(self.topic)
        if topic is None:
            return said
        before = {row.partition: row for row in self.partitions}
        self.partitions = topic.partitions
        for row in topic.partitions:
            old = before.get(row.partition)
            if old is not None and old.leader != row.leader:
                self.moves += 1
                said.append(self._move(old, row, now_s))
            elif old is not None and old.isr != row.isr:
                said.append(_isr_change(old, row))
        return said

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
        why = f"first live replica of the ISR ({_ids(old.isr)})"
        killed_s = self.killed_at.get(old.leader)
        if killed_s is not None:
            why = f"broker {old.leader} dead, {why}, {now_s - killed_s:.1f} s after the kill"
        return f"partition {row.partition}: leader {old.leader} → {row.leader}, {epochs}: {why}"


def rows_for_people(leadership: Leadership) -> list[tuple[str, ...]]:
    """Return a row for each partition: number, leader, epoch, ISR, replicas."""
    return [
        (
            str(row.partition),
            "none" if row.leader == NO_LEADER else str(row.leader),
            str(row.leader_epoch),
            _ids(row.isr),
            _ids(row.replicas),
        )
        for row in leadership.partitions
    ]


def _isr_change(old: PartitionInfo, row: PartitionInfo) -> str:
    return f"partition {row.partition}: in sync {_ids(old.isr)} → {_ids(row.isr)}"


def _ids(brokers: tuple[int, ...]) -> str:
    return " ".join(map(str, brokers))
