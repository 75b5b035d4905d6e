"""What a task waits for, in words: an operator who follows it must never be left without."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from leadline_client.wire import TopicPartition
from leadline_common.reassignments import WaitReason
from leadline_controller.domain.reassignment.machine import Wait
from leadline_controller.domain.reassignment.queue import QueuedReassignment

SHOWN = 3
"""The number of partitions named for each reason."""

_REASONS = {
    WaitReason.PARTITION_OFFLINE: "for a leader, from brokers {brokers}",
    WaitReason.TARGET_OFFLINE: "for brokers {brokers}, which are down",
    WaitReason.LEADER_LIMIT: "for reassignment.max.concurrent.leader.movements",
    None: "for reassignment.max.concurrent.partition.movements",
    WaitReason.CATCHING_UP: "until brokers {brokers} have caught up",
}
"""By reason, the worst first; None is a partition whose step has not begun."""


def describe_waits(
    entries: Iterable[QueuedReassignment], blocked: Collection[TopicPartition]
) -> str | None:
    """Return what reassignments wait for, or None if they go on.

    `blocked` are the partitions that wait for the limit on leader movements.
    """
    found: dict[WaitReason | None, list[QueuedReassignment]] = {}
    for entry in entries:
        if isinstance(entry.action, Wait):
            found.setdefault(entry.action.reason, []).append(entry)
        elif entry.topic_partition in blocked:
            found.setdefault(WaitReason.LEADER_LIMIT, []).append(entry)
        elif not entry.is_running:
            found.setdefault(None, []).append(entry)
    said = [_describe(found[reason], reason) for reason in _REASONS if reason in found]
    return "; ".join(said) or None


def _describe(entries: list[QueuedReassignment], reason: WaitReason | None) -> str:
    names = [f"{e.topic_partition.topic}-{e.topic_partition.partition}" for e in entries[:SHOWN]]
    more = ", …" if len(entries) > SHOWN else ""
    waits = [entry.action for entry in entries if isinstance(entry.action, Wait)]
    brokers = sorted({broker for wait in waits for broker in wait.waiting_for})
    said = _REASONS[reason].format(brokers=brokers)
    return f"{len(entries)} partition(s) ({', '.join(names)}{more}) {said}"
