"""Due actions of many reassignments, and their writes; without any IO."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from leadline_client.errors import (
    InvalidRequest,
    LeadlineError,
    PolicyViolation,
    ReassignmentInProgress,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import TopicPartition
from leadline_common.reassignments import ReassignmentAlgorithm, ReassignmentPhase, WaitReason
from leadline_common.tasks import Intent, TargetRow
from leadline_common.znodes import PartitionState
from leadline_controller.domain.cluster import (
    BrokerDown,
    BrokerUp,
    ClusterImage,
    StateSet,
    TopicGone,
    TopicSet,
)
from leadline_controller.domain.reassignment.batches import ReassignmentLimits
from leadline_controller.domain.reassignment.machine import Elect, Expand, Finish, Shrink, Wait
from leadline_controller.domain.reassignment.publication import TopicChange, publish_actions
from leadline_controller.domain.reassignment.queue import DueAction, ReassignmentQueue
from leadline_controller.domain.reassignment.requests import (
    Submission,
    check_idle,
    check_submission,
)
from tests.unit.controller.images import NAME, TOPIC, broker, cluster, state

NO_LIMITS = ReassignmentLimits()


def name(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


def world(*rows: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[ClusterImage, ReassignmentQueue]:
    """Return partitions that move from the first to the second replicas, and their queue."""
    image = cluster(
        range(1, 10),
        {number: start for number, (start, _) in enumerate(rows)},
        {number: state(start[0], start) for number, (start, _) in enumerate(rows)},
    )
    queue = ReassignmentQueue()
    for number, (start, target) in enumerate(rows):
        queue.put(name(number), Intent(target, start, task="7"), 0, number)
    return image, queue


def write(image: ClusterImage, due: list[DueAction]) -> TopicChange:
    """Apply due actions as if ZooKeeper had accepted them."""
    topic = image.topics[TOPIC]
    change = publish_actions(topic, due, image.controller_epoch)
    if change.assignment is not None:
        image.apply([TopicSet(TOPIC, change.assignment, topic.version + 1, 50)])
    image.apply(
        [StateSet(TOPIC, d.partition, d.after, d.version + 1, 50) for d in change.decisions]
    )
    return change


def catch_up(image: ClusterImage, queue: ReassignmentQueue, *numbers: int) -> None:
    """Add every replica to the ISR."""
    for number in numbers:
        partition = image.topics[TOPIC].partitions[number]
        assert partition.state is not None
        grown = PartitionState(
            partition.state.leader,
            partition.state.leader_epoch,
            (
                *partition.state.isr,
                *(b for b in partition.replicas if b not in partition.state.isr),
            ),
            1,
        )
        image.apply([StateSet(TOPIC, number, grown, partition.version + 1, 60)])
    queue.mark_changed(name(number) for number in numbers)


def test_a_reassignment_expands_elects_shrinks() -> None:
    image, queue = world(((1, 2), (3, 2)))
    (due,) = queue.due(image, NO_LIMITS)
    assert isinstance(due.action, Expand)
    change = write(image, [due])
    assert change.assignment is not None
    assert (change.assignment.adding, change.assignment.removing) == ({0: (3,)}, {0: (1,)})
    assert change.decisions[0].after.leader_epoch == 5
    queue.mark_changed([NAME])
    assert queue.due(image, NO_LIMITS) == []
    catch_up(image, queue, 0)
    (due,) = queue.due(image, NO_LIMITS)
    assert isinstance(due.action, Elect)
    change = write(image, [due])
    assert (change.assignment, change.drops) == (None, {})
    queue.mark_changed([NAME])
    (due,) = queue.due(image, NO_LIMITS)
    assert isinstance(due.action, Shrink)
    change = write(image, [due])
    assert (change.drops, change.finished) == ({0: (1,)}, [NAME])
    assert change.after == {"0": {"replicas": (3, 2), "adding": (), "removing": ()}}
    after = change.decisions[0].after
    assert (after.leader, after.isr, after.controller_epoch) == (3, (2, 3), 7)


def test_a_dropped_replica_is_no_longer_eligible() -> None:
    """KIP-966: a broker without a replica must not be elected."""
    image, queue = world(((1, 2, 4), (1, 2, 3)))
    short = PartitionState(1, 4, (1,), 1, eligible=(2, 4))
    image.apply([StateSet(TOPIC, 0, short, 4, 20)])
    write(image, queue.due(image, NO_LIMITS))
    grown = PartitionState(1, 5, (1, 3), 7, eligible=(2, 4))
    image.apply([StateSet(TOPIC, 0, grown, 6, 30)])
    queue.mark_changed([NAME])
    change = write(image, queue.due(image, NO_LIMITS))
    assert (change.drops, change.decisions[0].after.eligible) == ({0: (4,)}, (2,))


def test_a_drained_broker_is_not_made_the_leader_on_the_way() -> None:
    """Otherwise drain and reassignment would move the leader back and forth forever."""
    image, queue = world(((1, 2), (3, 4)))
    write(image, queue.due(image, NO_LIMITS))
    half = PartitionState(1, 5, (1, 2, 3), 7)
    image.apply([StateSet(TOPIC, 0, half, 5, 60)])
    image.draining = frozenset({3})
    queue.mark_changed([NAME])
    assert queue.due(image, NO_LIMITS) == [], "4 is waited for, and 3 leads nothing meanwhile"
    catch_up(image, queue, 0)
    (due,) = queue.due(image, NO_LIMITS)
    assert due.action == Elect(4)
    image.draining = frozenset()
    assert queue.has_changes(image, NO_LIMITS), "a change of the draining brokers counts"
    assert queue.due(image, NO_LIMITS)[0].action == Elect(3)


def test_a_drained_broker_leads_where_nobody_else_of_the_target_can() -> None:
    image, queue = world(((1,), (3,)))
    image.draining = frozenset({3})
    write(image, queue.due(image, NO_LIMITS))
    catch_up(image, queue, 0)
    assert [due.action for due in queue.due(image, NO_LIMITS)] == [Elect(3)]


def test_a_member_that_registered_since_leaves_the_isr_with_the_next_write() -> None:
    """Rule R9: the write is later than the registration and would confirm its membership."""
    image, queue = world(((1, 2), (1, 3)))
    image.apply([BrokerUp(broker(2, incarnation=1), zxid=30)])
    change = write(image, queue.due(image, NO_LIMITS))
    assert change.decisions[0].after.isr == (1,)


def test_an_intent_for_an_earlier_topic_of_the_name_moves_nothing() -> None:
    image, queue = world(((1, 2), (3, 2)))
    queue.put(NAME, Intent((3, 2), (1, 2), topic_id="id-0"), 1, 0)
    assert queue.due(image, NO_LIMITS) == []
    queue.put(NAME, Intent((3, 2), (1, 2), topic_id="id-1"), 2, 0)
    assert len(queue.due(image, NO_LIMITS)) == 1


def test_an_action_stays_due_until_it_is_written() -> None:
    image, queue = world(((1,), (2,)))
    assert queue.due(image, NO_LIMITS) == queue.due(image, NO_LIMITS) != []


def test_a_partition_at_its_target_is_finished_without_a_new_epoch() -> None:
    image, queue = world(((1, 2), (1, 2)))
    (due,) = queue.due(image, NO_LIMITS)
    assert isinstance(due.action, Finish)
    change = write(image, [due])
    assert (change.decisions, change.assignment, change.finished) == ([], None, [NAME])


def test_the_window_is_filled_in_order_and_freed_by_the_end_of_a_step() -> None:
    image, queue = world(*(((1, 2), (1, 3)) for _ in range(4)))
    limits = ReassignmentLimits(partition_movements=2)
    due = queue.due(image, limits)
    assert [one.topic_partition.partition for one in due] == [0, 1]
    write(image, due)
    queue.mark_changed([name(0), name(1)])
    assert queue.due(image, limits) == []
    assert queue.in_flight == 2
    catch_up(image, queue, 1)
    (due_now,) = queue.due(image, limits)
    change = write(image, [due_now])
    queue.drop(change.finished[0])
    assert queue.has_changes(image, limits)
    assert [one.topic_partition.partition for one in queue.due(image, limits)] == [2]


def test_a_move_to_a_broker_that_is_down_does_not_begin_and_takes_no_place() -> None:
    """With `legacy`, too, which adds all replicas at once."""
    image, queue = world(((1, 2), (1, 3)), ((1, 2), (1, 3)), ((1, 2), (1, 4)))
    queue.put(name(1), Intent((1, 3), (1, 2), "7", ReassignmentAlgorithm.LEGACY), 1, 1)
    limits = ReassignmentLimits(partition_movements=1)
    image.apply([BrokerDown(3)])
    assert [one.topic_partition.partition for one in queue.due(image, limits)] == [2]
    for number in (0, 1):
        entry = queue.get(name(number))
        assert entry is not None
        assert entry.action == Wait(WaitReason.TARGET_OFFLINE, (3,))


@pytest.mark.parametrize(
    "limits", [ReassignmentLimits(partition_movements=1), ReassignmentLimits(leader_movements=1)]
)
def test_a_step_whose_broker_dies_gives_its_place_to_others_until_it_is_back(
    limits: ReassignmentLimits,
) -> None:
    image, queue = world(*(((1, 2), (new, 2)) for new in (3, 4, 4)))
    write(image, queue.due(image, limits))
    queue.mark_changed([name(0)])
    assert queue.due(image, limits) == []
    image.apply([BrokerDown(3)])
    (second,) = queue.due(image, limits)
    assert second.topic_partition == name(1)
    write(image, [second])
    queue.mark_changed([name(1)])
    assert queue.due(image, limits) == []
    assert queue.in_flight == 2

    image.apply([BrokerUp(broker(3), zxid=1)])
    catch_up(image, queue, 1)
    while due := queue.due(image, limits):
        assert {one.topic_partition for one in due} == {name(1)}, "no third one begins"
        change = write(image, due)
        queue.mark_changed([name(1)])
        for finished in change.finished:
            queue.drop(finished)


def test_a_step_that_still_copies_to_a_live_broker_keeps_its_place() -> None:
    image, queue = world(((1, 2), (3, 4)), ((1, 2), (1, 5)))
    limits = ReassignmentLimits(partition_movements=1)
    write(image, queue.due(image, limits))
    queue.mark_changed([name(0)])
    image.apply([BrokerDown(3)])
    assert queue.due(image, limits) == []


def test_the_window_is_filled_with_steps_that_move_no_leader() -> None:
    image, queue = world(((1, 2), (3, 2)), ((1, 2), (3, 2)), ((1, 2), (1, 3)))
    limits = ReassignmentLimits(leader_movements=1)
    assert [one.topic_partition.partition for one in queue.due(image, limits)] == [0, 2]


def test_a_step_that_has_moved_its_leader_counts_until_it_ends() -> None:
    image, queue = world(((1, 2), (3, 4)), ((1, 2), (3, 2)))
    limits = ReassignmentLimits(leader_movements=1)
    write(image, queue.due(image, limits))
    grown = PartitionState(1, 5, (1, 2, 3), 7)
    image.apply([StateSet(TOPIC, 0, grown, 5, 55)])
    queue.mark_changed([NAME])
    (elect,) = queue.due(image, limits)
    assert isinstance(elect.action, Elect)
    write(image, [elect])
    queue.mark_changed([NAME])
    assert queue.due(image, limits) == []


def test_running_steps_beyond_a_lowered_leader_limit_hold_their_elections() -> None:
    image, queue = world(((1, 2), (3, 2)), ((1, 2), (3, 2)))
    write(image, queue.due(image, NO_LIMITS))
    catch_up(image, queue, 0, 1)
    limits = ReassignmentLimits(leader_movements=1)
    assert [one.topic_partition.partition for one in queue.due(image, limits)] == [0]
    assert queue.blocked_by_leader_limit(limits) == {name(1)}


@pytest.mark.parametrize("limits", [NO_LIMITS, ReassignmentLimits(leader_movements=1)])
def test_a_cancelled_step_takes_the_leadership_back(limits: ReassignmentLimits) -> None:
    """It elects a replica that the step would have removed."""
    start, target = (1, 4, 2), (4, 2, 3)
    image, queue = world((start, target))
    for expected in (Expand((4, 2, 3, 1), (3,), (1,)), Elect(4)):
        due = queue.due(image, limits)
        assert [one.action for one in due] == [expected]
        write(image, due)
        queue.mark_changed([NAME])
    queue.put(NAME, Intent(target, start, task="7", cancelled=True), 1, 0)
    (elect,) = queue.due(image, limits)
    assert elect.action == Elect(1)
    write(image, [elect])
    queue.mark_changed([NAME])
    (shrink,) = queue.due(image, limits)
    assert isinstance(shrink.action, Shrink)
    assert (shrink.action.assignment, shrink.action.finished) == (start, True)


def test_has_changes_since_the_last_decision() -> None:
    image, queue = world(((1,), (2,)))
    assert queue.has_changes(image, NO_LIMITS)
    queue.due(image, NO_LIMITS)
    assert not queue.has_changes(image, NO_LIMITS)
    queue.mark_changed([name(9)])
    assert not queue.has_changes(image, NO_LIMITS)
    assert queue.has_changes(image, ReassignmentLimits(replica_movements=1))
    image.apply([BrokerDown(9, 70)])
    assert queue.has_changes(image, NO_LIMITS)
    queue.refresh(image, NO_LIMITS)
    assert queue.has_changes(image, NO_LIMITS), "a refresh is not a decision"
    queue.due(image, NO_LIMITS)
    assert not queue.has_changes(image, NO_LIMITS)


def test_a_partition_that_is_gone_is_never_due() -> None:
    image, queue = world(((1,), (2,)))
    image.apply([TopicGone(TOPIC, 80)])
    assert queue.due(image, NO_LIMITS) == []
    entry = queue.get(NAME)
    assert entry is not None
    assert entry.phase is ReassignmentPhase.WAITING


def test_entries_are_found_by_task_and_topic() -> None:
    _, queue = world(((1,), (2,)), ((1,), (3,)))
    assert queue.of_task("7") == queue.of_topic(TOPIC) == [name(0), name(1)]
    queue.put(name(1), Intent((4,), (1,), task="8"), 1, 8)
    assert (queue.task_of(name(0)), queue.task_of(name(1))) == ("7", "8")
    queue.drop(name(0))
    assert not queue.has_task("7")
    assert queue.topics() == [TOPIC]
    queue.drop(name(1))
    assert (queue.topics(), len(queue)) == ([], 0)


@pytest.mark.parametrize(
    ("changes", "refusal", "says"),
    [
        ({"partitions": ()}, InvalidRequest, "at least one"),
        ({"partitions": (TargetRow(TOPIC, 0, (2,)),) * 2}, InvalidRequest, "twice"),
        ({"partitions": (TargetRow("none", 0, (2,)),)}, UnknownTopic, "none"),
        ({"partitions": (TargetRow(TOPIC, 5, (2,)),)}, UnknownPartition, "5"),
        ({"partitions": (TargetRow(TOPIC, 0, ()),)}, PolicyViolation, "empty"),
        ({"partitions": (TargetRow(TOPIC, 0, (2, 2)),)}, PolicyViolation, "twice"),
        ({"partitions": (TargetRow(TOPIC, 0, (44,)),)}, PolicyViolation, "[44] never registered"),
        (
            {
                "partitions": (TargetRow(TOPIC, 0, (2, 3)),),
                "allow_replication_factor_change": False,
            },
            PolicyViolation,
            "2 replicas instead of 1",
        ),
    ],
    ids=str,
)
def test_invalid_submissions_are_refused(
    changes: Mapping[str, object], refusal: type[LeadlineError], says: str
) -> None:
    image, _ = world(((1,), (2,)))
    with pytest.raises(refusal) as caught:
        check_submission(Submission(**changes), image, range(1, 10))  # type: ignore[arg-type]  # rows differ
    assert says in caught.value.message


def test_a_replica_on_an_unknown_broker_blocks_no_other_replica() -> None:
    """An operator wrote the topic node; healing and drains keep its other replicas."""
    image, _ = world(((1, 44), (2, 44)))
    check_submission(Submission((TargetRow(TOPIC, 0, (2, 44)),)), image, range(1, 10))


def test_partitions_being_reassigned_are_refused_without_retarget() -> None:
    _, queue = world(((1,), (2,)))
    wanted = Submission((TargetRow(TOPIC, 0, (3,)),))
    with pytest.raises(ReassignmentInProgress, match=f"{TOPIC}-0"):
        check_idle(wanted, queue)
    check_idle(Submission(wanted.partitions, retarget=True), queue)
    queue.drop(NAME)
    check_idle(wanted, queue)
