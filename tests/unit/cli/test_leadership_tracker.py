"""Changes of leadership are reported once, with their reasons."""

from __future__ import annotations

from leadline_cli.demo.leadership import LeadershipTracker
from leadline_client.wire import ControllerInfo, Metadata, PartitionInfo, TopicInfo


def snapshot(*leaders: tuple[int, int, tuple[int, ...]], controller: int = 1) -> Metadata:
    rows = tuple(
        PartitionInfo(number, leader, epoch, isr, (1, 2, 3))
        for number, (leader, epoch, isr) in enumerate(leaders)
    )
    active = ControllerInfo(controller, "", controller)
    return Metadata("c", 1, active, {}, {"t": TopicInfo("t", "id", rows)})


def test_the_first_snapshot_and_an_equal_one_say_nothing() -> None:
    tracker = LeadershipTracker("t")
    assert tracker.update(snapshot((1, 0, (1, 2))), 0) == []
    assert tracker.update(snapshot((1, 0, (1, 2))), 1) == []


def test_a_move_after_a_kill_says_why_and_when() -> None:
    tracker = LeadershipTracker("t")
    tracker.update(snapshot((1, 0, (1, 2, 3))), 0)
    tracker.killed_at[1] = 10.0
    assert not tracker.settled()
    (said,) = tracker.update(snapshot((2, 1, (2, 3))), 12.5)
    assert "leader 1 → 2, epoch 0 → 1" in said
    assert "broker 1 dead" in said
    assert "2.50 s after the kill" in said
    assert tracker.settled()
    assert tracker.moves == 1


def test_a_partition_without_a_leader_is_not_settled() -> None:
    tracker = LeadershipTracker("t")
    tracker.update(snapshot((1, 0, (1,))), 0)
    (said,) = tracker.update(snapshot((-1, 1, (1,))), 1)
    assert "leader 1 → none" in said
    assert not tracker.settled()


def test_a_new_controller_is_told() -> None:
    tracker = LeadershipTracker("t")
    tracker.update(snapshot((1, 0, (1,))), 0)
    (said,) = tracker.update(snapshot((1, 0, (1,)), controller=2), 1)
    assert "controller 2 is active, epoch 1 → 2" in said
    assert tracker.controller_moves == 1


def test_the_busiest_broker_leads_the_most() -> None:
    tracker = LeadershipTracker("t")
    tracker.update(snapshot((3, 0, (3,)), (2, 0, (2,)), (3, 0, (3,)), (-1, 0, ())), 0)
    assert tracker.busiest() == 3
    assert tracker.led_by(3) == [0, 2]
