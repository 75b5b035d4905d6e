"""What a task is said to wait for."""

from __future__ import annotations

import pytest

from leadline_client.wire import TopicPartition
from leadline_common.reassignments import WaitReason
from leadline_common.tasks import Intent
from leadline_controller.domain.reassignment.machine import Action, Elect, Expand, Wait
from leadline_controller.domain.reassignment.queue import QueuedReassignment
from leadline_controller.domain.reassignment.waits import describe_waits


def entry(number: int, action: Action) -> QueuedReassignment:
    return QueuedReassignment(TopicPartition("t", number), Intent((1,)), 0, 0, None, action)


@pytest.mark.parametrize("reason", list(WaitReason))
def test_defect_17_every_reason_to_wait_is_said(reason: WaitReason) -> None:
    said = describe_waits([entry(0, Wait(reason, (7,)))], ())
    assert said is not None
    assert said.startswith("1 partition(s) (t-0) ")
    assert ("[7]" in said) == (reason is not WaitReason.LEADER_LIMIT)


def test_the_worst_comes_first_and_many_partitions_are_not_all_named() -> None:
    entries = [entry(n, Wait(WaitReason.CATCHING_UP, (n,))) for n in range(1, 6)]
    entries.append(entry(9, Wait(WaitReason.TARGET_OFFLINE, (4,))))
    assert describe_waits(entries, ()) == (
        "1 partition(s) (t-9) for brokers [4], which are down; "
        "5 partition(s) (t-1, t-2, t-3, …) until brokers [1, 2, 3, 4, 5] have caught up"
    )


def test_limits_are_said_too() -> None:
    queued = entry(0, Expand((1, 2), (2,), ()))
    assert "partition.movements" in (describe_waits([queued], ()) or "")
    blocked = entry(1, Elect(2))
    assert "leader.movements" in (describe_waits([blocked], {blocked.topic_partition}) or "")
    assert describe_waits([], ()) is None
