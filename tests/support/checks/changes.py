"""What changed of a partition between two looks at ZooKeeper, by its audit."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.checks.zk_history import ZkView


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a partition's state."""

    leader_before: int
    leader_after: int
    epoch_before: int
    epoch_after: int
    isr_before: tuple[int, ...]
    isr_after: tuple[int, ...]

    @property
    def leader_changed(self) -> bool:
        """Whether somebody else leads, or nobody."""
        return self.leader_before != self.leader_after


def changes_of(before: ZkView, after: ZkView, topic: str, partition: int) -> list[Change]:
    """Return the changes that were made after `before`, in their order."""
    _, version = before.states[topic, partition]
    rows = after.changes(topic, partition)
    return [
        Change(
            row.before[0], row.after[0], row.before[1], row.after[1], row.before[2], row.after[2]
        )
        for row in rows
        if row.before is not None and row.state_version > version
    ]
