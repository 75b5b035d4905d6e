"""The reassignment of one partition in each phase, and the window over many partitions."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from leadline_client.wire import TopicPartition
from leadline_common.reassignments import ReassignmentAlgorithm, ReassignmentPhase, WaitReason
from leadline_controller.domain.reassignment.batches import (
    ReassignmentLimits,
    StepCandidate,
    WaitingSteps,
    candidate_for,
    collect_reassignment_batch,
)
from leadline_controller.domain.reassignment.machine import (
    MOVES,
    Action,
    Elect,
    Expand,
    Finish,
    IllegalReassignmentMove,
    ReassignmentState,
    Shrink,
    Wait,
    apply_action,
    moves_leader,
    next_action,
    phase_of,
)

LEGACY = ReassignmentAlgorithm.LEGACY


def state(replicas: tuple[int, ...], target: tuple[int, ...], **members: Any) -> ReassignmentState:
    """Return a partition whose brokers are all live and in sync; the first replica leads."""
    defaults: dict[str, Any] = {
        "leader": replicas[0],
        "isr": replicas,
        "start": replicas,
        "live": frozenset(range(10)),
    }
    return ReassignmentState(replicas=replicas, target=target, **(defaults | members))


def in_sync(now: ReassignmentState) -> ReassignmentState:
    """Let every live replica catch up."""
    return msgspec.structs.replace(now, isr=tuple(b for b in now.replicas if b in now.live))


def test_each_step_expands_elects_and_shrinks() -> None:
    """The last three brokers of the example of KIP-435, write by write."""
    now = state((5, 6, 2, 3, 4), (5, 6, 7, 8, 9), replica_movements=2, start=(0, 1, 2, 3, 4))
    expand = next_action(now)
    assert expand == Expand((5, 6, 7, 8, 2, 3, 4), adding=(7, 8), removing=(2, 3))
    now = apply_action(now, expand)
    assert next_action(now) == Wait(WaitReason.CATCHING_UP, (7, 8))
    now = in_sync(now)
    shrink = next_action(now)
    assert shrink == Shrink((5, 6, 7, 8, 4), (5, 6, 7, 8, 4), 5, drops=(2, 3), finished=False)
    now = in_sync(apply_action(apply_action(now, shrink), next_action(apply_action(now, shrink))))
    last = next_action(now)
    assert isinstance(last, Shrink)
    assert (last.assignment, last.drops, last.finished) == ((5, 6, 7, 8, 9), (4,), True)


def test_the_future_leader_leads_as_soon_as_it_is_in_sync() -> None:
    now = apply_action(start := state((0, 1), (2, 3)), next_action(start))
    assert now.adding == (2, 3)
    now = msgspec.structs.replace(now, isr=(0, 1, 2))
    assert next_action(now) == Elect(2)
    assert next_action(apply_action(now, Elect(2))) == Wait(WaitReason.CATCHING_UP, (3,))


def test_legacy_elects_at_the_end_alone_and_waits_for_all_of_rar() -> None:
    now = apply_action(start := state((0, 1), (2, 1), algorithm=LEGACY), next_action(start))
    assert (now.replicas, now.adding, now.removing) == ((2, 1, 0), (2,), (0,))
    now = msgspec.structs.replace(now, isr=(0, 2))
    assert next_action(now) == Wait(WaitReason.CATCHING_UP, (1,)), "1 is in RAR too"
    now = msgspec.structs.replace(now, isr=(0, 1, 2))
    assert next_action(now) == Elect(2)
    stays = state((1, 0), (2, 1), adding=(2,), removing=(0,), algorithm=LEGACY)
    stays = msgspec.structs.replace(stays, replicas=(2, 1, 0), isr=(0, 1, 2))
    assert isinstance(next_action(stays), Shrink)


def test_the_way_back_of_legacy_does_not_wait_for_what_is_down() -> None:
    """The additions have been stopped before, but a replica had to stay for enough in-sync ones."""
    back = state((1, 2, 3), (1, 2, 4), leader=2, live=frozenset({2, 3, 4}), algorithm=LEGACY)
    back = msgspec.structs.replace(back, replicas=(1, 2, 3, 4), removing=(4,), isr=(2, 3, 4))
    assert next_action(back) == Wait(WaitReason.TARGET_OFFLINE, (1,))
    back = msgspec.structs.replace(back, cancelled=True, start=(1, 2, 3))
    action = next_action(back)
    assert isinstance(action, Shrink)
    assert (action.assignment, action.finished) == ((1, 2, 3), True)


def test_nothing_is_done_without_a_live_leader() -> None:
    offline = state((0, 1), (2, 3), leader=-1, isr=(1,), live=frozenset({0, 2, 3}))
    assert next_action(offline) == Wait(WaitReason.PARTITION_OFFLINE, (1,))
    stale = state((0, 1), (2, 3), stale=frozenset({0}))
    assert phase_of(stale) is ReassignmentPhase.WAITING


def test_a_target_that_is_down_is_named() -> None:
    now = state((0, 1), (0, 2), live=frozenset({0, 1}))
    assert next_action(now) == Wait(WaitReason.TARGET_OFFLINE, (2,))


def test_cancelling_stops_additions_at_once_and_drops_nothing_else() -> None:
    now = state((0, 1, 2), (3, 4, 2), cancelled=True, adding=(3, 4), removing=(0, 1))
    now = msgspec.structs.replace(now, replicas=(3, 4, 2, 0, 1), isr=(0, 1, 2), leader=0)
    assert phase_of(now) is ReassignmentPhase.CANCELLING
    assert next_action(now) == Shrink((0, 1, 2), (0, 1, 2), 0, drops=(3, 4), finished=True)


def test_cancelling_takes_the_leadership_back_first() -> None:
    now = state((3, 0, 1), (3, 4), cancelled=True, start=(0, 1), adding=(3,), leader=3)
    assert next_action(now) == Elect(0)


def test_a_new_target_keeps_what_it_shares_with_the_running_step() -> None:
    now = state((0, 1), (4, 5), adding=(3, 4), removing=(0, 1))
    now = msgspec.structs.replace(now, replicas=(3, 4, 0, 1), isr=(0, 1), leader=0)
    shrink = next_action(now)
    assert shrink == Shrink((4, 0, 1), (0, 1), 0, drops=(3,), finished=False, adding=(4,))
    now = apply_action(now, shrink)
    assert next_action(now) == Wait(WaitReason.CATCHING_UP, (4,))


def test_a_new_target_keeps_what_was_to_be_removed() -> None:
    now = state((0, 1), (3, 0), adding=(3,), removing=(0, 1))
    now = msgspec.structs.replace(now, replicas=(3, 0, 1), isr=(3, 0, 1), leader=3)
    assert next_action(now) == Shrink((3, 0), (3, 0), 3, drops=(1,), finished=True)


@pytest.mark.parametrize("algorithm", ReassignmentAlgorithm)
def test_an_eligible_replica_stays_while_the_isr_is_too_small(
    algorithm: ReassignmentAlgorithm,
) -> None:
    """Replica 1 would have the only copy of what was committed; 3 lacks it."""
    small = {"isr": (1,), "eligible": (2,), "min_insync_replicas": 2, "algorithm": algorithm}
    now = state((1, 2, 3), (1, 3), **small)
    waiting = next_action(now)
    assert isinstance(waiting, Expand | Wait)
    if isinstance(waiting, Expand):  # The legacy algorithm adds, and then waits for all.
        now = apply_action(now, waiting)
        waiting = next_action(now)
    assert isinstance(waiting, Wait)
    assert waiting.waiting_for == (3,)
    caught_up = msgspec.structs.replace(now, isr=(1, 3), eligible=())
    for _ in range(3):
        caught_up = apply_action(caught_up, next_action(caught_up))
    assert caught_up.replicas == (1, 3)


def test_an_eligible_replica_that_lost_its_disk_is_no_copy() -> None:
    behind = {"isr": (1,), "eligible": (2, 3), "stale": frozenset({3}), "min_insync_replicas": 2}
    now = state((1, 2, 3, 4), (1, 4), **behind)
    assert next_action(now) == Expand((1, 4, 2, 3), adding=(), removing=(3,))


def test_eligible_replicas_beyond_the_minimum_are_dropped() -> None:
    now = state((1, 2, 3, 4), (1, 4), isr=(1,), eligible=(2, 3), min_insync_replicas=2)
    assert next_action(now) == Expand((1, 4, 2, 3), adding=(), removing=(2,))


def test_another_order_needs_no_copy() -> None:
    now = state((0, 1, 2), (2, 1, 0))
    assert moves_leader(now)
    expand = next_action(now)
    assert expand == Expand((2, 1, 0), (), ())
    now = apply_action(now, expand)
    assert next_action(now) == Elect(2)
    assert next_action(apply_action(now, Elect(2))) == Finish()


def test_a_leader_waits_for_its_turn() -> None:
    now = state((2, 0, 1), (2, 3), adding=(2,), leader=0, start=(0, 1))
    assert moves_leader(now)
    assert next_action(now, may_move_leader=False) == Wait(WaitReason.LEADER_LIMIT)
    assert next_action(now) == Elect(2)


def test_every_phase_refuses_illegal_actions() -> None:
    examples = {
        ReassignmentPhase.WAITING: state((0, 1), (2, 3), leader=-1),
        ReassignmentPhase.INIT: state((0, 1), (2, 3)),
        ReassignmentPhase.EXPANDING: state((2, 0), (2,), adding=(2,), isr=(0,), leader=0),
        ReassignmentPhase.SHRINKING: state((2, 0), (2,), adding=(2,)),
        ReassignmentPhase.CANCELLING: state((2, 0), (0,), adding=(2,)),
        ReassignmentPhase.DONE: state((0, 1), (0, 1)),
    }
    actions: list[Action] = [
        Wait(WaitReason.CATCHING_UP),
        Expand((2, 0), (2,), ()),
        Elect(0),
        Shrink((0,), (0,), 0, (), finished=False),
        Finish(),
    ]
    assert examples.keys() == MOVES.keys()
    for phase, example in examples.items():
        assert phase_of(example) is phase
        for action in actions:
            if type(action) in MOVES[phase]:
                apply_action(example, action)
            else:
                with pytest.raises(IllegalReassignmentMove, match=phase):
                    apply_action(example, action)


# -- the window ----------------------------------------------------------------------------


def name(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def candidates(*rows: tuple[int, int, bool, bool]) -> WaitingSteps:
    return WaitingSteps(
        StepCandidate(name(number), request, *flags) for number, request, *flags in rows
    )


def test_leader_movements_come_first_then_others_in_order() -> None:
    waiting = candidates(
        (0, 1, False, False),
        (1, 1, False, True),
        (2, 1, False, True),
        (3, 1, False, True),
        (4, 0, False, False),
        (5, 2, True, False),
    )
    limits = ReassignmentLimits(partition_movements=5, leader_movements=2)
    batch = collect_reassignment_batch(waiting, {}, limits)
    assert batch == [name(1), name(2), name(5), name(4), name(0)]


def test_the_window_stays_partly_empty_if_only_leader_movements_are_left() -> None:
    waiting = candidates((0, 1, False, True), (1, 1, False, True))
    limits = ReassignmentLimits(partition_movements=9, leader_movements=2)
    assert collect_reassignment_batch(waiting, {name(7): True}, limits) == [name(0)]


def test_partitions_in_flight_count_against_the_window() -> None:
    waiting = candidates((0, 1, False, False), (1, 1, False, False))
    limits = ReassignmentLimits(partition_movements=2)
    assert collect_reassignment_batch(waiting, {name(7): False, name(8): True}, limits) == []
    assert collect_reassignment_batch(waiting, {name(7): False}, limits) == [name(0)]
    no_limits = ReassignmentLimits()
    assert collect_reassignment_batch(waiting, {}, no_limits) == [name(0), name(1)]


def test_only_a_step_that_can_begin_is_a_candidate() -> None:
    assert candidate_for(name(0), 3, state((0, 1), (2, 3))) == StepCandidate(
        name(0), 3, started=False, leader_step=True
    )
    assert candidate_for(name(0), 3, state((2, 1), (2, 3), start=(0, 1))) == StepCandidate(
        name(0), 3, started=True, leader_step=False
    )
    assert candidate_for(name(0), 3, state((0,), (1,), live=frozenset({0}))) is None
    assert candidate_for(name(0), 3, state((0, 1), (1,), removing=(0,))) is None


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_partitions_never_exceed_a_limit(seed: int) -> None:
    """Partitions share the window; a raised limit applies from the next step on."""
    random = Random(seed)
    limits = ReassignmentLimits(1, partition_movements=12, leader_movements=3)
    partitions = {}
    for number in range(100):
        replicas = tuple(random.sample(range(10), 3))
        target = tuple(random.sample(range(10), 3))
        partitions[name(number)] = state(replicas, target, replica_movements=1)
    peak = (0, 0)
    for _ in range(4000):
        flying = {n: moves_leader(f) for n, f in partitions.items() if f.is_running}
        peak = max(peak[0], len(flying)), max(peak[1], sum(flying.values()))
        assert len(flying) <= 12
        assert sum(flying.values()) <= 3
        waiting = [c for n, f in partitions.items() if (c := candidate_for(n, 0, f)) is not None]
        batch = collect_reassignment_batch(WaitingSteps(waiting), flying, limits)
        for chosen in batch:
            partitions[chosen] = apply_action(partitions[chosen], next_action(partitions[chosen]))
        if not batch:
            if not flying:
                break
            moving = random.choice(sorted(flying))
            now = in_sync(partitions[moving]) if random.random() < 0.5 else partitions[moving]
            action = next_action(now)
            partitions[moving] = now = apply_action(now, action)
            if isinstance(action, Finish) or (isinstance(action, Shrink) and action.finished):
                del partitions[moving]
    assert not partitions
    assert peak == (12, 3)
